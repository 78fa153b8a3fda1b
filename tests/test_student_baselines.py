"""The baselines and measures of the student benchmarks, small; no times are looked at."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from student_models import make_student
from tiny_models import DATA, MODELS, TEXT, tiny_scorer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import bench_student
import student_fell_swoop
from bench_latency import Entry, Latencies, graph_entry, measure, pll_goal, student_goal, table
from rounds import EXACT
from student_baselines import Correction, corrected, unmasked
from student_fell_swoop import SwoopHead, SwoopSettings, drawn_places, fell_swoop, masked_rows, train
from student_material import Part, Sample, list_part, pair_part, text_part
from student_measures import rescoring
from student_scores import Judged, Scores, cached_scores, scorer_judged
from student_tables import pair_table
from student_teacher import FrozenTeacher

from mlmfast.rescoring import Hypothesis, NBestList
from mlmfast.scorer import open_model

BERT = MODELS / "bert"
TEXTS = ("The cat sat on the mat.", "", "Dogs", "A government of laws, not of men.")
PART = Part("texts", tuple((text,) for text in TEXTS))
SPEECH = DATA / "nbest" / "sample_speech.json"


def scores_of(totals: list[float]) -> Scores:
    return Scores(np.array(totals), np.ones(len(totals), dtype=np.int64), None)


# -- the training-free correction


@pytest.mark.parametrize(("random", "kept"), [(0.1, 0.1), (0.2, 0.05), (0.1, 0.0)])
def test_the_correction_undoes_the_mixture_of_random_and_kept_tokens(random: float, kept: float) -> None:
    p = np.array([1.0, 0.7, 0.2, 0.01])
    q = (random * p + kept * 1.0) / (random + kept)
    np.testing.assert_allclose(Correction(random, kept, 1e-3)(np.log(q)), np.log(p), atol=1e-12)


def test_the_correction_of_berts_scheme_is_twice_the_probability_less_one_never_below_epsilon() -> None:
    q = np.array([0.9, 0.55, 0.5005, 0.5, 0.1])
    expected = np.log([0.8, 0.1, 1e-3, 1e-2, 1e-2])
    expected[2:] = np.log(1e-2)
    np.testing.assert_allclose(Correction(epsilon=1e-2)(np.log(q)), expected, atol=1e-12)


@pytest.mark.parametrize("wrong", [(0.0, 0.1, 1e-3), (0.1, -0.1, 1e-3), (0.1, 0.1, 0.0), (0.1, 0.1, 1.0)])
def test_a_correction_that_means_nothing_is_refused(wrong: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="expected random > 0"):
        Correction(*wrong)


def test_baselines_without_training_score_what_the_model_says_unmasked(tmp_path: Path) -> None:
    own = unmasked(tiny_scorer("bert"))
    found = cached_scores(tmp_path, own, PART)
    results = tiny_scorer("bert").score(TEXTS, "none")
    assert found.num_tokens.tolist() == [result.num_tokens for result in results]
    assert np.isnan(found.totals[1])
    expected = [np.nan if result.score is None else result.score for result in results]
    np.testing.assert_allclose(found.totals, expected, rtol=1e-6)
    correction = Correction(epsilon=1e-5)
    again = corrected(own, correction, tmp_path).score(PART)
    by_hand = [correction([token.log_prob for token in result.tokens]).sum() for result in results]
    by_hand[1] = np.nan
    np.testing.assert_allclose(again.totals, by_hand, rtol=1e-6)


# -- the one-fell-swoop head


def test_drawn_places_are_scored_tokens_of_their_texts() -> None:
    texts = open_model(BERT).tokenizer.encode(TEXTS)
    text_index, places = drawn_places(texts, 3, seed=0)
    lengths = np.array([int((texts.word_ids[a:b] >= 0).sum()) for a, b in spans(texts.offsets)])
    assert np.bincount(text_index, minlength=4).tolist() == np.minimum(lengths, 3).tolist()
    assert (texts.word_ids[places] >= 0).all()
    assert len(np.unique(places)) == len(places)
    assert all(texts.offsets[i] <= p < texts.offsets[i + 1] for i, p in zip(text_index, places, strict=True))
    assert places.tolist() == drawn_places(texts, 3, seed=0)[1].tolist()


def spans(offsets: np.ndarray) -> list[tuple[int, int]]:
    return list(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))


def test_masked_rows_are_their_texts_but_for_one_token() -> None:
    texts = open_model(BERT).tokenizer.encode(TEXTS)
    text_index, places = drawn_places(texts, 2, seed=1)
    ids, offsets, moved = masked_rows(texts, text_index, places, mask_id=999)
    for row, (start, end) in enumerate(spans(offsets)):
        text = text_index[row]
        expected = texts.input_ids[texts.offsets[text] : texts.offsets[text + 1]].copy()
        expected[places[row] - texts.offsets[text]] = 999
        assert ids[start:end].tolist() == expected.tolist()
        assert ids[moved[row]] == 999


def test_states_are_those_of_each_row_by_itself() -> None:
    from transformers import AutoModelForMaskedLM

    files = open_model(BERT)
    teacher = FrozenTeacher(files)
    texts = files.tokenizer.encode(TEXTS)
    places = np.array([0, 2, 3, texts.offsets[2] + 1, texts.offsets[3], texts.offsets[4] - 1])
    found = teacher.states(texts.input_ids, texts.offsets, places)
    model = AutoModelForMaskedLM.from_pretrained(BERT).eval()
    row = np.searchsorted(texts.offsets, places, side="right") - 1
    with torch.no_grad():
        for state, place, index in zip(found, places, row, strict=True):
            ids = torch.from_numpy(texts.input_ids[texts.offsets[index] : texts.offsets[index + 1]])[None]
            whole = model(input_ids=ids, output_hidden_states=True)
            own = place - texts.offsets[index]
            torch.testing.assert_close(state, whole.hidden_states[-1][0, own], atol=0.05, rtol=0.05)
            torch.testing.assert_close(
                teacher.logits(whole.hidden_states[-1][0, own][None]), whole.logits[0, own][None]
            )


def test_training_brings_the_head_nearer_to_the_teacher_and_a_seed_makes_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    teacher = FrozenTeacher(open_model(BERT))
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(300, teacher.hidden_size, generator=generator)
    masked = states.roll(1, dims=1)
    settings = SwoopSettings(width=32, epochs=4, batch_size=32)
    head = train(teacher, states, masked, settings)
    printed = [float(line.split("teacher ")[1].split()[0]) for line in capsys.readouterr().out.splitlines()]
    assert 0 <= printed[-1] < printed[0]
    again = train(teacher, states, masked, settings)
    assert all(torch.equal(a, b) for a, b in zip(head.parameters(), again.parameters(), strict=True))


@pytest.fixture
def swoop_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A head of the tiny BERT, made by the command."""
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join((TEXT / "masc.txt").read_text(encoding="utf-8").splitlines()[:8]))
    folder = tmp_path / "head"
    arguments = ["", str(texts), "--output", str(folder), "--model", str(BERT), "--epochs", "1"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--width", "16", "--num-texts", "6"])
    student_fell_swoop.main()
    return folder


def test_the_head_scores_with_the_softmax_of_the_teachers_head(swoop_folder: Path) -> None:
    found = fell_swoop(swoop_folder, str(BERT)).score(PART)
    files = open_model(BERT)
    teacher, texts = FrozenTeacher(files), files.tokenizer.encode(TEXTS)
    head = SwoopHead(teacher.hidden_size, 16)
    head.load_state_dict(student_fell_swoop.load_file(swoop_folder / "head.safetensors"))
    for index, (start, end) in enumerate(spans(texts.offsets)):
        places = start + np.flatnonzero(texts.word_ids[start:end] >= 0)
        states = teacher.states(texts.input_ids, texts.offsets, places)
        with torch.no_grad():
            log_probs = torch.log_softmax(teacher.logits(head(states)).double(), dim=-1)
        expected = log_probs[np.arange(len(places)), texts.input_ids[places]].sum()
        assert found.num_tokens[index] == len(places)
        if len(places):
            assert found.totals[index] == pytest.approx(float(expected), abs=1e-3)
    assert np.isnan(found.totals[1])


def test_a_head_of_another_teacher_is_refused(swoop_folder: Path) -> None:
    with pytest.raises(SystemExit, match="other weights"):
        fell_swoop(swoop_folder, str(MODELS / "roberta"))
    settings = json.loads((swoop_folder / "head.json").read_text(encoding="utf-8"))["settings"]
    assert settings == asdict(SwoopSettings(width=16, epochs=1, num_texts=6))


# -- scores that are kept


def test_scores_are_computed_once_for_the_same_settings_and_texts(tmp_path: Path) -> None:
    computed: list[str] = []

    def judged(name: str, log_probs: np.ndarray | None) -> Judged:
        def score(part: Part) -> Scores:
            computed.append(name)
            return Scores(np.array([-1.5, np.nan]), np.array([2, 0]), log_probs)

        return Judged(name, {"weights": name}, score)

    tokens = np.array([-1.0, -0.5], dtype=np.float32)
    part, other = Part("p", (("a b", ""),)), Part("p", (("a b",), ("",)))
    for _ in range(2):
        found = cached_scores(tmp_path, judged("tokens", tokens), part)
        assert found.log_probs is not None
        assert found.log_probs.tolist() == tokens.tolist()
        assert found.per_token[0] == -0.75
        assert np.isnan(found.per_token[1])
        assert cached_scores(tmp_path, judged("sums", None), part).log_probs is None
    cached_scores(tmp_path, judged("tokens", tokens), other)
    assert computed == ["tokens", "sums", "tokens"]


# -- what is judged on, and the measures


def test_a_sample_of_a_files_last_lines_of_fitting_length(tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    path.write_text(
        "first line here\nno\na well @-@ known line\na well @-@ known line\n\nthe last of these\n"
    )
    tokenizer = open_model(BERT).tokenizer
    everything = Sample(10, least_tokens=3, most_tokens=60, seed=0)
    part = text_part(f"{path}@4", everything, tokenizer)
    assert part.groups == (("a well-known line",), ("the last of these",))
    assert part.name == "some, of the last 4 lines"
    assert len(text_part(str(path), everything, tokenizer).groups) == 3
    assert len(text_part(str(path), Sample(2, 3, 60, 0), tokenizer).groups) == 2
    with pytest.raises(SystemExit, match="at least 2"):
        text_part(str(path), Sample(10, 50, 60, 0), tokenizer)


def test_pairs_are_the_first_of_each_paradigm_and_hypotheses_are_prepared() -> None:
    pairs = pair_part(TEXT / "blimp_sample.jsonl", 1)
    assert all(len(group) == 2 for group in pairs.groups)
    assert len(set(pairs.groups)) == len(pairs.groups) == 67
    lists = list_part("lists", [NBestList("u", (Hypothesis(1, "so it is", {"first_pass": 0.0}),))])
    assert lists.groups == (("So it is.",),)
    assert Part("p", (("a", "b"), (), ("c",))).offsets.tolist() == [0, 2, 2, 3]


def test_of_pairs_ties_are_wrong() -> None:
    teacher = scores_of([-1, -2, -2, -1, -1, -2, -1, -2])
    student = scores_of([-3, -4, -5, -4, -4, -3, -3, -3])
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in pair_table([("teacher", teacher), ("student", student)]).splitlines()
    ]
    assert [row[:3] for row in rows[2:]] == [["teacher", "75.0%", "100.0%"], ["student", "25.0%", "50.0%"]]


def test_rescoring_with_scores_that_know_the_answer_removes_the_errors() -> None:
    texts = ("a b x", "a b c", "y b x")
    nbest = [
        NBestList(
            f"u{index}",
            tuple(Hypothesis(n, text, {"first_pass": -float(n)}) for n, text in enumerate(texts, 1)),
            ("a b c",),
        )
        for index in range(6)
    ]
    knowing = np.array([-5.0, 0.0, -9.0] * 6)
    found = rescoring(nbest, knowing, foldings=2)
    assert found.first_pass == pytest.approx(100 / 3)
    assert (found.tuned, found.in_sample, found.oracle, found.deviation) == (0.0, 0.0, 0.0, 0.0)
    assert found.gain == pytest.approx(100 / 3)
    assert rescoring(nbest, np.zeros(18), foldings=1).gain == 0.0


def test_the_report_judges_students_and_baselines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swoop_folder: Path
) -> None:
    student = make_student(tmp_path / "student", layers=1)
    arguments = {
        "--student": student,
        "--engine": "torch",
        "--teacher": BERT,
        "--fell-swoop": swoop_folder,
        "--texts": TEXT / "masc.txt",
        "--sample": 12,
        "--blimp": TEXT / "blimp_sample.jsonl",
        "--pairs-per-paradigm": 1,
        "--lists": SPEECH,
        "--foldings": 1,
        "--cache": tmp_path / "cache",
        "--output": tmp_path / "report.md",
        "--rate-rounds": 1,
        "--rate-lengths": 20,
    }
    monkeypatch.setattr(sys, "argv", ["", *(str(value) for item in arguments.items() for value in item)])
    bench_student.main()
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    for name in ("student student", "unmasked", "corrected, epsilon 0.001", "one fell swoop"):
        assert report.count(f"| {name} |") >= 4
    assert report.count("| teacher | ") == 2
    assert "| teacher, masked | " in report


# -- latency


def test_latency_gives_no_ratio_to_who_disagrees_and_names_who_is_absent() -> None:
    def constant(value: float) -> Callable[[], Callable[[str], list[float]]]:
        return lambda: lambda text: [value] * len(text.split())

    entries = [
        Entry("first", constant(-1.0)),
        Entry("near", constant(-1.00001)),
        Entry("far", constant(-1.5)),
        graph_entry("graph", "pll", None, lambda folder: constant(-1.0)()),
    ]
    found = measure(entries, ["a b", "c"], calls=5, rounds=2)
    assert [len(found[name].seconds) for name in ("first", "near", "far", "graph")] == [5, 5, 5, 0]
    lines, disagreeing = table(found, {entry.name: EXACT for entry in entries})
    assert disagreeing == ["far"]
    rows = {row.split(" | ")[0].strip("| "): row for row in lines.splitlines()}
    assert "disagrees" in rows["far"]
    assert "mlmfast export --kind pll" in rows["graph"]
    assert "disagrees" not in rows["near"]


def test_another_number_of_tokens_disagrees() -> None:
    found = {
        "first": Latencies(seconds=[1.0], log_probs=[[-1.0, -1.0]]),
        "other": Latencies(seconds=[1.0], log_probs=[[-2.0]]),
    }
    assert table(found, {"first": EXACT, "other": EXACT})[1] == ["other"]


def test_the_goal_of_pll_is_against_the_faster_of_hugging_faces() -> None:
    found = {
        "Hugging Face, all copies at once": Latencies(seconds=[0.008]),
        "Hugging Face, copy by copy": Latencies(seconds=[0.004]),
        "native, float32": Latencies(seconds=[0.002]),
        "native, bf16x3": Latencies(unavailable="no matrix unit"),
    }
    assert "2.00x; goal 3x: missed" in pll_goal(found, [])
    assert "4.00x; goal 3x: met" in pll_goal(found, ["Hugging Face, copy by copy"])
    assert "not judged" in pll_goal(found, ["native, float32"])


def test_the_goal_of_the_student_is_that_of_the_fastest_that_agrees() -> None:
    found = {
        "torch, float32": Latencies(seconds=[0.0001]),
        "native, bfloat16": Latencies(seconds=[0.002]),
        "native, int8": Latencies(seconds=[0.0009]),
    }
    assert "native, int8: p50 0.900 ms; goal under 1 ms: met" in student_goal(found, [])
    assert "native, bfloat16: p50 2.000 ms; goal under 1 ms: missed" in student_goal(found, ["native, int8"])
    assert "not judged" in student_goal(found, ["native, bfloat16", "native, int8"])


def test_a_student_is_judged_by_its_own_masking(tmp_path: Path) -> None:
    import mlmfast

    folder = make_student(tmp_path / "cls", head="cls")
    with mlmfast.load(folder, engine="torch", precision="float32", workers=1) as scorer:
        judged = scorer_judged("student", scorer, scorer.default_masking)
        found = judged.score(PART)
    assert judged.settings["masking"] == "student"
    assert found.log_probs is None
    assert np.isfinite(found.totals[[0, 2, 3]]).all()
