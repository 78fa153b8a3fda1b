"""The ways a model's log-probabilities become the score of a variant.

All but the context of masked marginals are those of Meier et al. 2021 ("Language models enable zero-shot
prediction of the effects of mutations on protein function", the appendix that compares them). M is the set of
mutated positions, x the wild type, y the mutant; natural logs; the wild type scores 0 under each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from mlmfast.errors import SettingsError
from mlmfast.proteins.mutations import Variant
from mlmfast.proteins.protein import Protein, Row


class Term(NamedTuple):
    """sign times the log-probability of a letter at a position of a row."""

    row: Row
    position: int
    letter: str
    sign: int


Convention = Callable[[Protein, Variant], Iterator[Term]]


def marginals(variant: Variant, row_of: Callable[[int], Row]) -> Iterator[Term]:
    """sum over i in M of log p(y_i) - log p(x_i), both at position i of the row that i is scored in."""
    for mutation in variant:
        row = row_of(mutation.position)
        yield Term(row, mutation.position, mutation.mutant, 1)
        yield Term(row, mutation.position, mutation.wild_type, -1)


def wt_marginals(protein: Protein, variant: Variant) -> Iterator[Term]:
    """sum over i in M of log p(y_i | x) - log p(x_i | x): one unmasked row of the wild type."""
    return marginals(variant, lambda i: protein.row(i))


def masked_marginals(protein: Protein, variant: Variant) -> Iterator[Term]:
    """sum over i in M of log p(y_i | x without x_i) - log p(x_i | the same): the other mutated positions show
    the wild type, so that all variants share L rows. What the paper's published code computes."""
    return marginals(variant, lambda i: protein.row(i, masked=(i,)))


def masked_marginals_among_masks(protein: Protein, variant: Variant) -> Iterator[Term]:
    """sum over i in M of log p(y_i | x without x_M) - log p(x_i | the same): all mutated positions are
    masked, as the paper's formula has it; one row per set of positions."""
    positions = tuple(mutation.position for mutation in variant)
    return marginals(variant, lambda i: protein.row(i, masked=positions))


def masked_marginals_among_mutants(protein: Protein, variant: Variant) -> Iterator[Term]:
    """sum over i in M of log p(y_i | y without y_i) - log p(x_i | the same): the other mutated positions show
    the mutant's letters; a row per mutation."""
    return marginals(variant, lambda i: protein.row(i, changed=variant, masked=(i,)))


def mutant_marginals(protein: Protein, variant: Variant) -> Iterator[Term]:
    """sum over i in M of log p(y_i | y) - log p(x_i | y): one unmasked row of the mutant."""
    return marginals(variant, lambda i: protein.row(i, changed=variant))


def pppl(protein: Protein, variant: Variant) -> Iterator[Term]:
    """sum over all i of log p(y_i | y without y_i) - log p(x_i | x without x_i): the pseudo-log-likelihood of
    the mutant less that of the wild type; L rows per variant and L of the wild type."""
    mutants = {mutation.position: mutation.mutant for mutation in variant}
    for i, letter in enumerate(protein.sequence):
        yield Term(protein.row(i, changed=variant, masked=(i,)), i, mutants.get(i, letter), 1)
        yield Term(protein.row(i, masked=(i,)), i, letter, -1)


CONVENTIONS: dict[str, Convention] = {
    "wt-marginals": wt_marginals,
    "masked-marginals": masked_marginals,
    "mutant-marginals": mutant_marginals,
    "pppl": pppl,
}
CONTEXTS: dict[str, Convention] = {
    "wild-type": masked_marginals,
    "mask": masked_marginals_among_masks,
    "mutant": masked_marginals_among_mutants,
}
"""What the other mutated positions show under masked-marginals."""


def convention_named(name: str, context: str = "wild-type") -> Convention:
    """Raises SettingsError for an unknown name or context, or a context where the convention has none."""
    for what, value, known in (("convention", name, CONVENTIONS), ("context", context, CONTEXTS)):
        if value not in known:
            raise SettingsError(f"unknown {what} {value!r}; expected one of {', '.join(known)}")
    if name == "masked-marginals":
        return CONTEXTS[context]
    if context != "wild-type":
        raise SettingsError(f"context {context!r} is for masked-marginals; {name} has none to choose")
    return CONVENTIONS[name]
