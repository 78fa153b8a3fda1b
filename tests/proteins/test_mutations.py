"""Mutation strings: what they mean, and what is refused with which words."""

from __future__ import annotations

import pytest
from tiny_models import tiny_scorer

from mlmfast import InputError
from mlmfast.proteins import Mutation, VariantScorer, mutated, parse_variant
from mlmfast.proteins.mutations import mutation_name

SEQUENCE = "MKVAGM"


@pytest.mark.parametrize(
    ("text", "offset", "expected", "sequence"),
    [
        ("K2R", 0, [("K", 1, "R")], "MRVAGM"),
        ("M6W:K2R", 0, [("K", 1, "R"), ("M", 5, "W")], "MRVAGW"),
        (" V27A : A28V ", 24, [("V", 2, "A"), ("A", 3, "V")], "MKAVGM"),
        ("M-2C", -3, [("M", 0, "C")], "CKVAGM"),
        ("K2K", 0, [("K", 1, "K")], SEQUENCE),
    ],
)
def test_what_a_string_means(
    text: str, offset: int, expected: list[tuple[str, int, str]], sequence: str
) -> None:
    variant = parse_variant(text, SEQUENCE, offset)
    assert variant == tuple(Mutation(*mutation) for mutation in expected)
    assert mutated(SEQUENCE, variant) == sequence
    again = ":".join(mutation_name(mutation, offset) for mutation in variant)
    assert parse_variant(again, SEQUENCE, offset) == variant


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a mutation; expected the wild type's letter"),
        ("K2", "'K2' is not a mutation"),
        ("k2r", "'k2r' is not a mutation"),
        ("K2R:", "'' is not a mutation"),
        ("K2R,V3A", "'K2R,V3A' is not a mutation"),
        ("K2*", r"'K2\*' is not a mutation"),
        (
            "A2R",
            "A2R: residue 2 of the wild type is K, not A; check the wild type, and the offset, which is 0",
        ),
        ("K7R", "K7R: the wild type has no residue 7, only 1 to 6; the offset is 0"),
        ("M0R", "M0R: the wild type has no residue 0"),
        ("K2X", "K2X: X is not one of the twenty amino acids, ACDEFGHIKLMNPQRSTVWY"),
        ("K2R:V3A:K2S", "'K2R:V3A:K2S' has two mutations of residue 2"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        parse_variant(text, SEQUENCE)


def test_errors_name_numbers_as_they_are_written() -> None:
    with pytest.raises(InputError, match="no residue 24, only 25 to 30; the offset is 24"):
        parse_variant("M24R", SEQUENCE, 24)
    with pytest.raises(InputError, match="two mutations of residue 26"):
        parse_variant("K26R:K26S", SEQUENCE, 24)


def test_a_bad_string_is_named_by_its_index() -> None:
    with pytest.raises(InputError, match=r"^variants\[1\]: A2R: residue 2 of the wild type is K"):
        VariantScorer(tiny_scorer("esm2"), SEQUENCE).score(["K2R", "A2R"])


@pytest.mark.parametrize(
    ("sequence", "message"),
    [
        ("", "no residues"),
        (" \n*", "no residues"),
        ("MK-V", "residue 3 of the wild type is '-'"),
        ("MKÄ", "residue 3"),
    ],
)
def test_wild_types_that_are_refused(sequence: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        VariantScorer(tiny_scorer("esm2"), sequence)


def test_a_wild_type_is_tidied_as_for_scoring() -> None:
    assert VariantScorer(tiny_scorer("esm2"), " mkV\nagM*").sequence == SEQUENCE
