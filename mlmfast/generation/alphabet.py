"""Which tokens may be sampled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from mlmfast.errors import SettingsError
from mlmfast.tokenization import Tokenizer
from mlmfast.tokenization.proteins import AMINO_ACIDS
from mlmfast.types import BoolArray, Int64Array

RESIDUES = "residues"
"""The name of the twenty amino acids among tokens to allow or forbid."""


def allowed_tokens(
    tokenizer: Tokenizer, vocab_size: int, allow: Sequence[str] = (), forbid: Sequence[str] = ()
) -> BoolArray:
    """bool[V], the tokens that may be sampled: those of `allow` but for those of `forbid`.

    Without `allow` all tokens but the special and the unknown one, of a protein model the twenty amino acids.
    Tokens are given as the vocabulary writes them, of a protein model as letters, several in one string;
    `residues` stands for the twenty amino acids. vocab_size: V, of the model, which may have ids without a
    token. Special tokens and the unknown one may not be asked for.

    Raises SettingsError for a token that there is not, or that may not be sampled, and if none is left.
    """
    if not allow and tokenizer.protein:
        allow = (RESIDUES,)
    if allow:
        allowed = np.zeros(vocab_size, dtype=bool)
        allowed[_ids_of(allow, tokenizer, "allow")] = True
    else:
        allowed = ordinary_tokens(tokenizer, vocab_size)
        allowed[_never_sampled(tokenizer)] = False
    if forbid:
        allowed[_ids_of(forbid, tokenizer, "forbid")] = False
    if not allowed.any():
        raise SettingsError("no token may be sampled: allow others, or forbid fewer")
    return allowed


def ordinary_tokens(tokenizer: Tokenizer, vocab_size: int) -> BoolArray:
    """bool[V], the ids that have a token which is not special; the unknown token is ordinary."""
    known = tokenizer.vocabulary[:vocab_size]
    ordinary = np.zeros(vocab_size, dtype=bool)
    ordinary[: len(known)] = [token != "" for token in known]
    ordinary[sorted(tokenizer.special.all_ids)] = False
    return ordinary


def _ids_of(given: Iterable[str], tokenizer: Tokenizer, option: str) -> Int64Array:
    if isinstance(given, str):
        raise SettingsError(f"{option} is {given!r:.40}; expected a sequence of tokens, such as [token]")
    tokens = [token for item in given for token in _tokens_in(item, tokenizer)]
    ids = {token: index for index, token in enumerate(tokenizer.vocabulary) if token}
    never = set(_never_sampled(tokenizer))
    for token in tokens:
        if token not in ids:
            raise SettingsError(
                f"{option}: {token!r} is no token of this model; give tokens as its vocabulary writes them"
            )
        if ids[token] in never:
            raise SettingsError(f"{option}: {token!r} is a special token, which is never sampled")
    return np.array([ids[token] for token in tokens], dtype=np.int64)


def _tokens_in(item: str, tokenizer: Tokenizer) -> Sequence[str]:
    if not tokenizer.protein or item in tokenizer.special_names:
        return [item]
    return sorted(AMINO_ACIDS) if item == RESIDUES else list(item)


def _never_sampled(tokenizer: Tokenizer) -> list[int]:
    unknown = tokenizer.special.unknown_id
    return [*tokenizer.special.all_ids, *([] if unknown is None else [unknown])]
