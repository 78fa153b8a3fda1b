"""`mlmfast rescore`: lists through real processes, in every way a user may ask for."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest
from command_line import BERT, DATA, MODELS, num_safe, read_meta
from test_terminal import Terminal
from waiting import wait_until

SAMPLES = DATA / "nbest"
SPEECH = SAMPLES / "speech.json"
FIVE_BEST = [
    (-3036.0082, "him being comparatively mater"),
    (-3036.1106, "in being comparatively mater"),
    (-3039.3872, "in being a comparatively mater"),
    (-3040.3088, "him being a comparatively mater"),
    (-3040.4112, "him being comparatively modern"),
]
ONE = ("--lm-weight", "0.5")


@pytest.fixture
def rescore(mlmfast_command):
    def run(*args, model=BERT, **streams):
        chosen = () if model is None else ("--model", model)
        return mlmfast_command.run("rescore", "--workers", 1, *chosen, *args, **streams)

    return run


def read_lists(content: bytes | str) -> dict[str, list[dict]]:
    """Hypotheses by utterance, in the order of their numbers."""
    return {
        id: [value[f"hyp_{rank}"] for rank in range(1, sum(name.startswith("hyp_") for name in value) + 1)]
        for id, value in json.loads(content).items()
    }


def write_lists(path, lists: dict[str, list[tuple[float, str]]]):
    path.write_text(
        json.dumps(
            {
                id: {f"hyp_{rank}": {"score": s, "text": t} for rank, (s, t) in enumerate(hypotheses, 1)}
                for id, hypotheses in lists.items()
            }
        )
    )
    return path


def test_lists_come_out_renumbered_with_their_scores(rescore, mlmfast_command):
    run = rescore(SPEECH, *ONE, "--append-period")
    assert run.status == 0, run.err
    before, after = read_lists(SPEECH.read_bytes()), read_lists(run.out)
    assert list(after) == list(before)
    for id, hypotheses in after.items():
        old = {hypothesis["text"]: hypothesis["score"] for hypothesis in before[id]}
        assert sorted(hypothesis["text"] for hypothesis in hypotheses) == sorted(old)
        totals = [hypothesis["score"] for hypothesis in hypotheses]
        assert totals == sorted(totals, reverse=True)
        texts = "".join(hypothesis["text"] + ".\n" for hypothesis in hypotheses)
        scored = mlmfast_command.score(stdin=texts.encode())
        for hypothesis, record in zip(hypotheses, scored.records, strict=True):
            assert hypothesis["mlm"] == pytest.approx(record["score"], abs=1e-4)
            assert hypothesis["score"] == old[hypothesis["text"]] + 0.5 * hypothesis["mlm"]


@pytest.mark.parametrize(
    ("options", "totals"),
    [
        (("--lm-weight", "0.3"), [-3048.8137, -3048.323, -3048.7013, -3050.7182, -3050.1546]),
        (
            ("--lm-weight", "2", "--normalize", "gnmt:0.6"),
            [-3098.8424, -3096.0346, -3082.5495, -3088.5468, -3088.2202],
        ),
        (
            ("--lm-weight", "0.9", "--formula", "fairseq-mlm-scoring"),
            [-342.0173, -340.2483, -331.881, -335.2591, -333.2713],
        ),
    ],
)
def test_formulas_of_other_tools(rescore, tmp_path, options, totals):
    """The totals their arithmetic gives for PLLs of the embedded model, as in rescoring/test_weights.py."""
    source = write_lists(tmp_path / "five.json", {"LJ001-0002": FIVE_BEST})
    run = rescore(source, *options, "--append-period", model=None)
    assert run.status == 0, run.err
    found = {hypothesis["text"]: hypothesis["score"] for hypothesis in read_lists(run.out)["LJ001-0002"]}
    for (_, text), total in zip(FIVE_BEST, totals, strict=True):
        assert found[text] == pytest.approx(total, abs=2e-3)


def test_moses_lists_gain_one_feature(rescore):
    source = SAMPLES / "marian" / "normalized.nbest"
    run = rescore(source, *ONE, "--name", "MLM0")
    assert run.status == 0, run.err
    lines = run.out.decode().splitlines()
    without = [re.sub(r" MLM0= \S+", "", line) for line in lines]
    assert sorted(without) == sorted(source.read_text().splitlines())
    assert all(len(re.findall(r" MLM0= -[\d.]+ \|\|\|", line)) == 1 for line in lines)


def test_a_folder_is_written_as_a_folder(rescore, tmp_path):
    run = rescore(SAMPLES / "kaldi", *ONE, "--lm-scale", "6.5", "--output", tmp_path / "out")
    assert run.status == 0, run.err
    assert {"words_text", "ac_cost", "lm_cost", "lmwt.mlm", "text"} <= set(os.listdir(tmp_path / "out"))
    assert (tmp_path / "out" / "words_text").read_bytes() == (SAMPLES / "kaldi" / "words_text").read_bytes()


def test_a_stream_needs_its_format(rescore):
    unnamed = rescore("-", *ONE, stdin=SPEECH)
    assert (unnamed.status, unnamed.out) == (2, b"")
    assert "name it with --format" in unnamed.err
    named = rescore("-", *ONE, "--format", "mlm-scoring", stdin=SPEECH)
    assert named.out == rescore(SPEECH, *ONE).out


def test_lazy_has_the_winners_of_full_scoring(rescore):
    full, lazy = (rescore(SPEECH, "--lm-weight", "2", *options) for options in ((), ("--lazy",)))
    assert lazy.status == 0, lazy.err
    for id, hypotheses in read_lists(lazy.out).items():
        assert hypotheses[0] == read_lists(full.out)[id][0]
        assert all(hypothesis["score"] is None for hypothesis in hypotheses[1:])
    computed, of = re.search(
        r"lazily (\d+) rows computed, [\d.]+% of the (\d+) of full scoring", lazy.err
    ).groups()
    assert int(computed) < int(of)
    assert f"{of} of them computed" in full.err


def test_several_models_features_and_a_word_bonus(rescore):
    options = ("--model", MODELS / "roberta", "--lm-weight", "0.5", "--lm-weight", "0.25")
    run = rescore(SPEECH, *options, "--feature", "lm_score=2", "--word-bonus", "1.5")
    assert run.status == 0, run.err
    before = {
        h["text"]: h["score"] for hypotheses in read_lists(SPEECH.read_bytes()).values() for h in hypotheses
    }
    for hypotheses in read_lists(run.out).values():
        for h in hypotheses:
            total = before[h["text"]] + 0.5 * h["mlm1"] + 0.25 * h["mlm2"] + 2 * h["lm_score"]
            assert h["score"] == pytest.approx(total + 1.5 * len(h["text"].split()))


def test_no_model_but_scores_of_the_lists(rescore):
    run = rescore(SPEECH, "--feature", "lm_score=2", model="none")
    assert run.status == 0, run.err
    for hypotheses in read_lists(run.out).values():
        assert "mlm" not in hypotheses[0]
    assert "rows" not in run.err


EMPTY_AND_LONG = {
    "a": [(-1.0, ""), (-2.0, "people")],
    "b": [(-1.0, "the"), (-2.0, "the " * 100), (-3.0, "")],
    "c": [],
}


def test_what_has_no_score_keeps_its_rank(rescore, tmp_path):
    source = write_lists(tmp_path / "lists.json", EMPTY_AND_LONG)
    refused = rescore(source, *ONE)
    assert refused.status == 1
    assert "error: list 'b', line 1, hypothesis 2: 102 tokens, but the model takes 64" in refused.err
    run = rescore(source, *ONE, "--on-error", "skip")
    assert run.status == 3
    assert "skipped: list 'b', line 1, hypothesis 2: 102 tokens" in run.err
    assert "3 lists (1 without hypotheses), 5 hypotheses (2 empty, 1 skipped with an error), " in run.err
    lists = read_lists(run.out)
    assert {id: [h["text"] for h in hypotheses] for id, hypotheses in lists.items()} == {
        id: [text for _, text in hypotheses] for id, hypotheses in EMPTY_AND_LONG.items()
    }
    assert [h["score"] is None for h in lists["b"]] == [False, True, True]
    last = rescore(source, *ONE, "--on-error", "skip", "--missing", "last")
    assert [h["text"] for h in read_lists(last.out)["a"]] == ["people", ""]
    assert rescore(source, *ONE, "--overlong", "truncate", "--quiet").status == 0


def test_what_has_no_first_pass_score_is_counted(rescore, tmp_path):
    source, output = tmp_path / "lists.nbest", tmp_path / "out"
    source.write_text("0 ||| We ||| LM= -1 ||| nan\n0 ||| the people ||| LM= -2 ||| -2\n")
    run = rescore(source, *ONE, "--output", output)
    assert run.status == 0, run.err
    assert "1 lists, 2 hypotheses (0 empty, 0 skipped with an error, 1 without a first-pass score)" in run.err
    assert read_meta(output)["summary"]["num_without_first_pass"] == 1


def test_parts_that_cannot_be_read_are_skipped(rescore, tmp_path):
    source = tmp_path / "lists.nbest"
    source.write_text(
        "0 ||| We ||| F0= -1 ||| -1\n0 ||| the people ||| F0= -2 ||| ?\n1 ||| the ||| F0= -2 ||| -2\n"
    )
    assert "line 2: " in rescore(source, *ONE).err
    run = rescore(source, *ONE, "--on-error", "skip")
    assert run.status == 3
    assert "skipped: line 2: " in run.err
    assert run.out.count(b"\n") == 2


def moses_lists(first: int, end: int) -> bytes:
    """Lists of 20 hypotheses."""
    return "".join(
        f"{id} ||| the {id} {rank} people ||| F0= {-rank} ||| {-rank}\n"
        for id in range(first, end)
        for rank in range(20)
    ).encode()


def test_a_run_that_was_ended_goes_on(rescore, mlmfast_command, tmp_path):
    """Ended in its middle, when some lists are on disk and a pipe holds back the rest."""
    source, whole, output, pipe = (tmp_path / name for name in ("in.nbest", "whole", "out", "pipe"))
    source.write_bytes(moses_lists(0, 90))
    assert rescore(source, *ONE, "--output", whole).status == 0
    os.mkfifo(pipe)
    start = ("rescore", "--workers", 1, "--model", BERT, "-", "--format", "moses", *ONE, "--output", output)
    running = mlmfast_command.start(*start, stdin=pipe)
    with pipe.open("wb", buffering=0) as producer:
        producer.write(moses_lists(0, 55))
        wait_until(lambda: num_safe(output) > 0)
        running.send(signal.SIGTERM)
        run = running.wait()
    assert run.status == 143
    assert f"lists; {output} holds what is done, continue with --resume" in run.err
    assert 0 < read_meta(output)["progress"]["records"] < 90
    assert "continue it with --resume" in rescore(source, *ONE, "--output", output).err

    other = rescore(source, "--lm-weight", "0.75", "--output", output, "--resume")
    assert other.status == 1
    assert "was started with other settings (weights.terms: " in other.err
    last = rescore(source, *ONE, "--output", output, "--resume")
    assert last.status == 0, last.err
    assert output.read_bytes() == whole.read_bytes()
    summary, expected = (read_meta(path)["summary"] for path in (output, whole))
    for name in ("num_lists", "num_hypotheses", "num_empty", "num_errors", "num_changed"):
        assert summary[name] == expected[name]
    again = rescore(source, *ONE, "--output", output, "--resume")
    assert f"{output} is complete already" in again.err


def test_progress_on_a_terminal(rescore):
    with Terminal() as terminal:
        run = rescore(SPEECH, *ONE, stderr=terminal.path)
    assert run.status == 0
    assert re.search("36/36", terminal.shown)
    assert re.search(r"[\d,]+ hypotheses/s", terminal.shown)
    assert re.search(r"\d:\d\d:\d\d", terminal.shown)
    assert rescore(SPEECH, *ONE, "--quiet").err == ""


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((), "1 models, but 0 weights: give --weights, or --lm-weight for each"),
        (("--lm-weight", "1", "--weights", "w.json"), "--weights has all weights"),
        (("--lm-weight", "1", "--feature", "lm"), "--feature 'lm': expected NAME=WEIGHT"),
        (("--lm-weight", "1", "--normalize", "gnmt"), "gnmt takes an alpha"),
        (("--lm-weight", "1", "--format", "word"), "unknown list format 'word'"),
        (("--lm-weight", "1", "--lm-scale", "2"), "lm_scale is for "),
        (("--lm-weight", "1", "--name", "a", "--name", "b"), "1 models and the names ['a', 'b']"),
        (("--lm-weight", "1", "--masking", "causal"), "masking 'causal' needs a causal one"),
        (("--lm-weight", "1", "--output", SPEECH), "is the input, too"),
    ],
)
def test_options_that_do_not_fit(rescore, options, reason):
    run = rescore(SPEECH, *options)
    assert (run.status, run.out) == (2, b"")
    assert reason in run.err
    assert run.err.count("\n") == 1
