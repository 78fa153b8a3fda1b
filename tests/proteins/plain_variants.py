"""The plain way to score a variant: a forward pass of full logits in float64 for every term, no sharing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from reference import forward, load_model, load_tokenizer

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
MASK = "<mask>"
Mutations = Sequence[tuple[str, int, str]]
"""(the wild type's letter, position from 0, the mutant's letter)."""


def replaced(sequence: Sequence[str], letters: dict[int, str]) -> tuple[str, ...]:
    return tuple(letters.get(position, letter) for position, letter in enumerate(sequence))


@cache
def position_log_probs(folder: Path, letters: tuple[str, ...], position: int) -> torch.Tensor:
    """log p over the vocabulary at a position of a row of letters and masks."""
    tokenizer = load_tokenizer(folder)
    ids = [tokenizer.convert_tokens_to_ids(letter) for letter in letters]
    eos_id = tokenizer.eos_token_id if tokenizer.sep_token_id is None else tokenizer.sep_token_id
    return forward(load_model(folder), [tokenizer.cls_token_id, *ids, eos_id])[position + 1]


def log_prob(
    folder: Path,
    letters: Sequence[str],
    position: int,
    letter: str,
    *,
    capacity: int | None = None,
    residues: bool = False,
) -> float:
    """capacity: the residues a window holds; residues: over the twenty amino acids alone."""
    start, end = window_at(len(letters), capacity or len(letters), position)
    log_probs = position_log_probs(folder, tuple(letters[start:end]), position - start)
    tokenizer = load_tokenizer(folder)
    found = float(log_probs[tokenizer.convert_tokens_to_ids(letter)])
    if residues:
        of_residues = [float(log_probs[tokenizer.convert_tokens_to_ids(x)]) for x in RESIDUES]
        found -= math.log(sum(map(math.exp, of_residues)))
    return found


def window_at(length: int, capacity: int, position: int) -> tuple[int, int]:
    """The half-overlapping window in which a position is most central, the later of two that are level."""
    if length <= capacity:
        return 0, length
    starts = [*range(0, length - capacity, max(capacity // 2, 1)), length - capacity]
    best = min(starts, key=lambda start: (abs(position - (start + (capacity - 1) / 2)), -start))
    return best, best + capacity


def plain_score(
    folder: Path,
    sequence: str,
    mutations: Mutations,
    convention: str,
    context: str = "wild-type",
    **how: object,
) -> float:
    """The score of a variant, term by term as Meier et al. 2021 define it."""
    mutant = replaced(sequence, {position: letter for _, position, letter in mutations})

    def difference(row: Sequence[str], wild_type: str, position: int, letter: str) -> float:
        return log_prob(folder, row, position, letter, **how) - log_prob(
            folder, row, position, wild_type, **how
        )

    def masked(row: Sequence[str], *positions: int) -> tuple[str, ...]:
        return replaced(row, dict.fromkeys(positions, MASK))

    if convention == "pppl":
        return sum(
            log_prob(folder, masked(mutant, i), i, mutant[i], **how)
            - log_prob(folder, masked(sequence, i), i, sequence[i], **how)
            for i in range(len(sequence))
        )
    total = 0.0
    for wild_type, position, letter in mutations:
        row: Sequence[str] = {
            "wt-marginals": sequence,
            "mutant-marginals": mutant,
            "masked-marginals": {
                "wild-type": masked(sequence, position),
                "mask": masked(sequence, *(p for _, p, _ in mutations)),
                "mutant": masked(mutant, position),
            }[context],
        }[convention]
        total += difference(row, wild_type, position, letter)
    return total
