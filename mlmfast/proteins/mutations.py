"""Mutation strings such as `A23G:K45R`, read against the wild type they change."""

from __future__ import annotations

import re
from typing import NamedTuple

from mlmfast.errors import InputError
from mlmfast.tokenization.proteins import AMINO_ACIDS

RESIDUES = "".join(sorted(AMINO_ACIDS))
"""The twenty amino acids, in the order of the columns of every table here."""
MUTATION = re.compile(r"([A-Z])(-?[0-9]{1,9})([A-Z])")


class Mutation(NamedTuple):
    """One residue exchanged. position: in the wild type, from 0; the letters may be equal."""

    wild_type: str
    position: int
    mutant: str


Variant = tuple[Mutation, ...]
"""Mutations of different positions, ascending."""


def parse_variant(text: str, sequence: str, offset: int = 0) -> Variant:
    """The mutations of a string: the wild type's letter, the residue's number, the letter in its place, and
    colons between them. The first residue of the sequence has number offset + 1.

    Raises InputError for what is not a mutation, a residue that the wild type does not have, a letter that is
    not the wild type's, one put in that is not one of the twenty amino acids, two mutations of one residue.

    >>> parse_variant("A23G:K21R", "KLA", offset=20)
    (Mutation(wild_type='K', position=0, mutant='R'), Mutation(wild_type='A', position=2, mutant='G'))
    """
    found: dict[int, Mutation] = {}
    for part in text.strip().split(":"):
        mutation = parse_mutation(part.strip(), sequence, offset)
        if mutation.position in found:
            number = mutation.position + offset + 1
            raise InputError(f"{text!r:.60} has two mutations of residue {number}; name each residue once")
        found[mutation.position] = mutation
    return tuple(found[position] for position in sorted(found))


def parse_mutation(text: str, sequence: str, offset: int) -> Mutation:
    match = MUTATION.fullmatch(text)
    if match is None:
        raise InputError(
            f"{text!r:.60} is not a mutation; expected the wild type's letter, a residue's number and the "
            "new letter, such as A23G, and colons between several"
        )
    wild_type, number, mutant = match[1], int(match[2]), match[3]
    position = number - offset - 1
    if not 0 <= position < len(sequence):
        raise InputError(
            f"{text}: the wild type has no residue {number}, only {offset + 1} to {offset + len(sequence)}; "
            f"the offset is {offset}"
        )
    if sequence[position] != wild_type:
        raise InputError(
            f"{text}: residue {number} of the wild type is {sequence[position]}, not {wild_type}; check the "
            f"wild type, and the offset, which is {offset}"
        )
    if mutant not in AMINO_ACIDS:
        raise InputError(f"{text}: {mutant} is not one of the twenty amino acids, {RESIDUES}")
    return Mutation(wild_type, position, mutant)


def mutated(sequence: str, variant: Variant) -> str:
    """The sequence with the mutations made."""
    letters = list(sequence)
    for mutation in variant:
        letters[mutation.position] = mutation.mutant
    return "".join(letters)


def mutation_name(mutation: Mutation, offset: int = 0) -> str:
    """The mutation as it is written."""
    return f"{mutation.wild_type}{mutation.position + offset + 1}{mutation.mutant}"
