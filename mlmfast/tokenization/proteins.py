"""Protein sequences: which tokenizers read them, and how a sequence is prepared."""

from __future__ import annotations

import re
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


def prepare_protein(original: str, special: Sequence[str] = ()) -> PreparedProtein:
    """White space goes; letters are upper-cased and a `*` at the end (a stop codon) is dropped, both counted.

    special: names of special tokens that the sequence may hold, left as they are. `X B Z U O - .` and an
    inner `*` become the model's own token where its vocabulary has one and the unknown token where it does
    not.
    """
    kept = [i for i, c in enumerate(original) if not c.isspace()]
    num_changed = 0
    if kept and original[kept[-1]] == "*":
        kept.pop()
        num_changed = 1
    letters = "".join(original[i] for i in kept)
    names_or_lower = "|".join([*map(re.escape, special), "[a-z]"])
    sequence = re.sub(names_or_lower, lambda m: m[0] if m[0] in special else m[0].upper(), letters)
    num_changed += sum(a != b for a, b in zip(letters, sequence, strict=True))
    return PreparedProtein(sequence, tuple(kept), num_changed)
