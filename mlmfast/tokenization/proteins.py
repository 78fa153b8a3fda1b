"""Protein sequences: which tokenizers read them, and how a sequence is prepared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlmfast.tokenization.tokenizer import SpecialTokens

AMINO_ACIDS = frozenset("ACDEFGHIKLMNPQRSTVWY")
MAX_VOCABULARY = 64


def is_protein_vocabulary(vocabulary: Sequence[str], special: SpecialTokens) -> bool:
    """True if the tokens are single letters, the twenty amino acids among them."""
    ordinary = {t for i, t in enumerate(vocabulary) if i not in special.all_ids}
    letters = {t for t in ordinary if len(t) == 1}
    return (
        len(vocabulary) <= MAX_VOCABULARY and letters >= AMINO_ACIDS and not any(c.islower() for c in letters)
    )


@dataclass(frozen=True)
class PreparedProtein:
    """A sequence as the model reads it; kept[i] is the place in the original of its character i."""

    sequence: str
    kept: tuple[int, ...]
    num_changed: int


def prepare_protein(original: str) -> PreparedProtein:
    """White space goes; letters are upper-cased and a `*` at the end (a stop codon) is dropped, both counted.

    `X B Z U O - .` and an inner `*` become the model's own token where its vocabulary has one and the
    unknown token where it does not.
    """
    kept = [i for i, c in enumerate(original) if not c.isspace()]
    num_changed = 0
    if kept and original[kept[-1]] == "*":
        kept.pop()
        num_changed = 1
    letters = [original[i] for i in kept]
    upper = [c.upper() if c.isascii() else c for c in letters]
    num_changed += sum(a != b for a, b in zip(letters, upper, strict=True))
    return PreparedProtein("".join(upper), tuple(kept), num_changed)
