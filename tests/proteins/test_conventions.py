"""Every convention against a plain loop of forward passes, and where theory says that they agree."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from plain_variants import RESIDUES, plain_score
from tiny_models import MODELS, tiny_scorer

from mlmfast import SettingsError, TextTooLongError
from mlmfast.proteins import CONTEXTS, CONVENTIONS, VariantScorer

ESM, SAPIENS = MODELS / "esm2", MODELS / "sapiens-vh"
PROTEINS = (MODELS.parent / "text" / "proteins.fasta").read_text().split(">")[1:]
ESM_SEQUENCE = PROTEINS[0].split()[1]
WHOLE = {"esm2": ESM_SEQUENCE[:30], "sapiens-vh": PROTEINS[6].split()[1][:25]}
WAYS = [(name, "wild-type") for name in CONVENTIONS] + [("masked-marginals", c) for c in ("mask", "mutant")]


def variants_of(sequence: str, seed: int = 0) -> list[list[tuple[str, int, str]]]:
    """Variants of one, two and three mutations, one of them of the first residue, one of the last."""
    random = np.random.default_rng(seed)
    last = len(sequence) - 1
    positions = [[0], [last], [3, 4], sorted(random.choice(len(sequence), 3, replace=False).tolist())]
    return [[(sequence[p], p, str(random.choice(list(RESIDUES)))) for p in of_one] for of_one in positions]


def names(variants: list[list[tuple[str, int, str]]], offset: int = 0) -> list[str]:
    return [":".join(f"{a}{p + 1 + offset}{b}" for a, p, b in variant) for variant in variants]


@pytest.mark.parametrize("engine", ["native", "torch"])
@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize(("convention", "context"), WAYS)
def test_a_plain_loop_agrees(name: str, engine: str, convention: str, context: str) -> None:
    sequence = WHOLE[name]
    variants = variants_of(sequence)
    scorer = VariantScorer(
        tiny_scorer(name, engine=engine), sequence, convention=convention, context=context, offset=7
    )
    expected = [plain_score(MODELS / name, sequence, v, convention, context) for v in variants]
    assert scorer.score(names(variants, offset=7)) == pytest.approx(expected, abs=5e-4)
    assert np.ptp(expected) > 0.1


def test_probabilities_that_the_authors_printed() -> None:
    """Sapiens' own example has three masks: the context `mask` of a variant of these three residues."""
    golden = json.loads((SAPIENS / "golden_authors_probs.json").read_text())
    masked = golden["input"]
    assert [position for position, letter in enumerate(masked) if letter == "*"] == [0, 1, 5]
    sequence = f"EV{masked[2:5]}E{masked[6:]}"
    scorer = VariantScorer(tiny_scorer("sapiens-vh"), sequence, context="mask")
    for number, rest in ((1, "V2V:E6E"), (2, "E1E:E6E")):
        printed = dict(zip(golden["columns"], golden["rows"][str(number - 1)], strict=True))
        own = sequence[number - 1]
        found = scorer.score(f"{own}{number}{letter}:{rest}" for letter in RESIDUES)
        assert found == pytest.approx([math.log(printed[x] / printed[own]) for x in RESIDUES], abs=5e-4)


@pytest.mark.parametrize(("convention", "context"), WAYS)
def test_windows_agree_with_a_plain_loop(convention: str, context: str) -> None:
    sequence = ESM_SEQUENCE[:80]  # of which a window of the tiny model holds 62
    variants = [[("M", 0, "L"), (sequence[79], 79, "W")], [(sequence[40], 40, "K"), (sequence[39], 39, "G")]]
    scorer = VariantScorer(
        tiny_scorer("esm2"), sequence, convention=convention, context=context, overlong="window"
    )
    expected = [
        plain_score(ESM, sequence, sorted(v, key=lambda m: m[1]), convention, context, capacity=62)
        for v in variants
    ]
    assert scorer.score(names(variants)) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("name", WHOLE)
def test_contexts_are_one_for_a_single_mutation(name: str) -> None:
    sequence = WHOLE[name]
    singles = names([[(sequence[p], p, "W")] for p in range(len(sequence))])
    found = [
        VariantScorer(tiny_scorer(name), sequence, context=context).score(singles) for context in CONTEXTS
    ]
    assert np.ptp(found[0]) > 0.1
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_contexts_differ_for_several_mutations() -> None:
    sequence = WHOLE["esm2"]
    variant = names([[(sequence[3], 3, "W"), (sequence[4], 4, "C")]])
    found = [
        float(VariantScorer(tiny_scorer("esm2"), sequence, context=context).score(variant)[0])
        for context in CONTEXTS
    ]
    assert min(abs(a - b) for a, b in zip(found, found[1:] + found[:1], strict=True)) > 1e-3


@pytest.mark.parametrize("convention", ["wt-marginals", "masked-marginals"])
def test_scores_from_rows_of_the_wild_type_add_up(convention: str) -> None:
    sequence = WHOLE["sapiens-vh"]
    first, second = names([[(sequence[2], 2, "K")], [(sequence[9], 9, "P")]])
    scorer = VariantScorer(tiny_scorer("sapiens-vh"), sequence, convention=convention)
    a, b, both, other_order = scorer.score([first, second, f"{first}:{second}", f"{second}:{first}"])
    assert both == pytest.approx(a + b, abs=1e-12)
    assert other_order == both


@pytest.mark.parametrize(("convention", "context"), WAYS)
def test_the_wild_type_scores_zero(convention: str, context: str) -> None:
    sequence = WHOLE["sapiens-vh"]
    scorer = VariantScorer(tiny_scorer("sapiens-vh"), sequence, convention=convention, context=context)
    assert scorer.score(names([[(sequence[2], 2, sequence[2])]]))[0] == 0


@pytest.mark.parametrize("overlong", ["error", "window"])
def test_pppl_is_the_difference_of_two_scores(overlong: str) -> None:
    sequence = ESM_SEQUENCE[: 80 if overlong == "window" else 50]
    mutant = sequence[:20] + "W" + sequence[21:48] + "C" + sequence[49:]
    base = tiny_scorer("esm2")
    scorer = VariantScorer(base, sequence, convention="pppl", overlong=overlong)
    of_mutant, of_wild_type = base.score([mutant, sequence], overlong=overlong)
    (found,) = scorer.score([f"{sequence[20]}21W:{sequence[48]}49C"])
    assert found == pytest.approx(of_mutant.score - of_wild_type.score, abs=2e-3)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_residues_alone(convention: str) -> None:
    """Over the twenty amino acids, a plain loop agrees; the marginals stay what they are."""
    sequence = WHOLE["esm2"]
    variants = variants_of(sequence)
    scores = {
        subset: VariantScorer(
            tiny_scorer("esm2"), sequence, convention=convention, vocab_subset=subset
        ).score(names(variants))
        for subset in ("all", "residues")
    }
    expected = [plain_score(ESM, sequence, v, convention, residues=True) for v in variants]
    assert scores["residues"] == pytest.approx(expected, abs=5e-4)
    difference = np.abs(scores["residues"] - scores["all"]).max()
    assert difference > 0.1 if convention == "pppl" else difference < 1e-9


def test_a_residue_beyond_the_twenty_is_an_ordinary_one() -> None:
    sequence = "MKXAYIAK"
    scorer = VariantScorer(tiny_scorer("esm2"), sequence)
    (found,) = scorer.score(["X3A"])
    assert found == pytest.approx(plain_score(ESM, sequence, [("X", 2, "A")], "masked-marginals"), abs=5e-4)
    assert scorer.models[0].num_unknown == 0
    assert VariantScorer(tiny_scorer("sapiens-vh"), sequence).models[0].num_unknown == 1
    with pytest.raises(SettingsError, match="the wild type has X"):
        VariantScorer(tiny_scorer("esm2"), sequence, vocab_subset="residues")


def test_several_models_are_averaged() -> None:
    sequence = WHOLE["esm2"]
    scorers = [tiny_scorer("esm2"), tiny_scorer("sapiens-vh")]
    variants = names(variants_of(sequence))
    alone = [VariantScorer(scorer, sequence).score(variants) for scorer in scorers]
    both = VariantScorer(scorers, sequence)
    np.testing.assert_array_equal(both.score(variants), np.mean(alone, axis=0))
    by_model = np.array(list(both.score_iter(map(both.parse, variants))))
    np.testing.assert_array_equal(by_model.T, alone)


@pytest.mark.parametrize(
    ("convention", "rows"), [("wt-marginals", 1), ("masked-marginals", 30), ("mutant-marginals", 1 + 30 * 19)]
)
def test_the_table_of_all_substitutions(convention: str, rows: int) -> None:
    sequence = WHOLE["esm2"]
    scorer = VariantScorer(tiny_scorer("esm2"), sequence, convention=convention)
    scorer.num_at_once = 7
    table = scorer.table()
    assert scorer.models[0].num_rows == rows
    assert table.shape == (30, 20)
    for position, letter in enumerate(sequence):
        assert table[position, RESIDUES.index(letter)] == 0
    some = [(sequence[p], p, RESIDUES[(7 * p) % 20]) for p in range(0, 30, 6)]
    expected = [plain_score(ESM, sequence, [mutation], convention) for mutation in some]
    found = [table[p, RESIDUES.index(letter)] for _, p, letter in some]
    assert found == pytest.approx(expected, abs=5e-4)


def test_rows_are_computed_once_for_all_variants() -> None:
    sequence = WHOLE["esm2"]
    variants = names([[(sequence[p], p, letter)] for p in (1, 5) for letter in "CDE"])
    scorer = VariantScorer(tiny_scorer("esm2"), sequence)
    scorer.score(variants)
    scorer.score(variants)
    assert scorer.models[0].num_rows == 2


def test_a_row_without_the_mutated_residue_is_the_wild_types() -> None:
    sequence = WHOLE["esm2"]
    scorer = VariantScorer(tiny_scorer("esm2"), sequence, convention="pppl")
    scorer.score([f"{sequence[4]}5W"])
    assert scorer.models[0].num_rows == 2 * len(sequence) - 1


def test_chunks_change_nothing() -> None:
    sequence = WHOLE["esm2"]
    variants = names(variants_of(sequence))
    scorer = VariantScorer(tiny_scorer("esm2", engine="native"), sequence, convention="pppl")
    whole = scorer.score(variants)
    scorer.num_at_once = 1
    np.testing.assert_array_equal(scorer.score(variants), whole)


def test_a_wild_type_too_long_is_refused() -> None:
    with pytest.raises(TextTooLongError, match="82 tokens long, but the model takes 64"):
        VariantScorer(tiny_scorer("esm2"), ESM_SEQUENCE[:80])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bert", {}, "reads no proteins"),
        ("gpt2", {}, "is a causal model; variants need a masked one"),
        ("esm2", {"convention": "wt"}, "unknown convention 'wt'; expected one of wt-marginals"),
        ("esm2", {"context": "none"}, "unknown context 'none'"),
        ("esm2", {"convention": "pppl", "context": "mask"}, "context 'mask' is for masked-marginals"),
        ("esm2", {"vocab_subset": "letters"}, "unknown vocab_subset"),
        ("esm2", {"overlong": "truncate"}, "unknown overlong"),
    ],
)
def test_options_that_do_not_fit(name: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        VariantScorer(tiny_scorer(name), "MKV", **options)


def test_no_model() -> None:
    with pytest.raises(SettingsError, match="no model"):
        VariantScorer([], "MKV")


def test_no_variants() -> None:
    assert VariantScorer(tiny_scorer("esm2"), "MKV").score([]).shape == (0,)
