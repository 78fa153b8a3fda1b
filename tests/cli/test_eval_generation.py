"""`mlmfast eval-generation`: figures of samples and trails as JSON, and what is refused."""

from __future__ import annotations

import json

import pytest
import sacrebleu
from command_line import BERT, DATA

from mlmfast.evaluation import Overlap

GPT, BERT_BASE = DATA / "generation" / "gpt.txt", DATA / "generation" / "bert_base.txt"
TRAIL = "".join(
    json.dumps({"chain": 0, "step": i, "text": f"a {i // 2}", "energy": (i * 7) % 5, "accepted": i % 2 == 0})
    + "\n"
    for i in range(12)
)


def texts_of(path):
    return path.read_text("utf-8").splitlines()


def test_samples(mlmfast_command):
    run = mlmfast_command.run(
        *("eval-generation", GPT, "--references", BERT_BASE, "--references", GPT, "--lowercase")
    )
    assert run.status == 0, run.err
    found = json.loads(run.out)
    sampled, referred = ([text.lower().split() for text in texts_of(path)] for path in (GPT, BERT_BASE))
    overlap = Overlap(sampled, [*referred, *sampled])
    assert found["samples"] == {"num_texts": 60, "num_empty": 0, "num_skipped": 0}
    assert found["self_bleu"]["score"] == overlap.self_bleu().score
    assert found["corpus_bleu"]["score"] == overlap.corpus_bleu().score == pytest.approx(100)
    assert found["unique_ngrams"] == {
        "in_samples": list(overlap.unique_in_samples()),
        "against_references": [0.0, 0.0, 0.0, 0.0],
    }
    assert found["num_references"] == 100
    assert found["made_with"]["lowercase"] is True
    assert "self-BLEU 16.38, corpus BLEU 100.00" in run.err


def test_aligned_references_by_sacrebleu(mlmfast_command, tmp_path):
    files = []
    for shift in (1, 2):
        files.append(tmp_path / f"references{shift}.txt")
        texts = texts_of(GPT)
        files[-1].write_text("\n".join(texts[shift:] + texts[:shift]) + "\n", encoding="utf-8")
    options = [option for file in files for option in ("--aligned-references", file)]
    run = mlmfast_command.run("eval-generation", GPT, *options, "--quiet")
    assert (run.status, run.err) == (0, "")
    expected = sacrebleu.corpus_bleu(texts_of(GPT), [texts_of(file) for file in files]).score
    assert json.loads(run.out)["bleu"]["score"] == pytest.approx(expected)
    run = mlmfast_command.run("eval-generation", GPT, "--aligned-references", BERT_BASE)
    assert run.status == 1
    assert "has 40 references for 60 samples" in run.err


def test_lower_case_is_for_aligned_references_too(mlmfast_command, tmp_path):
    samples = tmp_path / "samples.txt"
    samples.write_text("".join(text.upper() + "\n" for text in texts_of(GPT)), encoding="utf-8")
    command = ("eval-generation", samples, "--aligned-references", GPT, "--quiet")
    assert json.loads(mlmfast_command.run(*command).out)["bleu"]["score"] < 50
    found = json.loads(mlmfast_command.run(*command, "--lowercase").out)
    assert found["bleu"]["score"] == pytest.approx(100)


@pytest.mark.parametrize("option", ["--references", "--aligned-references"])
def test_a_file_without_references_is_refused(mlmfast_command, tmp_path, option):
    (tmp_path / "none.txt").write_text("")
    run = mlmfast_command.run("eval-generation", GPT, option, tmp_path / "none.txt")
    assert run.status == 1
    assert "none.txt: no references" in run.err


def test_models_score_the_samples(mlmfast_command, tmp_path):
    samples = tmp_path / "samples.jsonl"
    sentences = ["We the people.", "", "Fourscore years ago."]
    samples.write_text("".join(json.dumps({"text": text}) + "\n" for text in sentences))
    run = mlmfast_command.run(
        *("eval-generation", samples, "--input-format", "jsonl", "--model", BERT, "--unit", "token"),
        *("--causal-model", DATA / "models" / "gpt2", "--workers", "1", "--output", tmp_path / "out.json"),
    )
    assert (run.status, run.out) == (0, b""), run.err
    found = json.loads((tmp_path / "out.json").read_text())
    plain = mlmfast_command.run("score", samples, "--input-format", "jsonl", "--model", BERT, "--quiet")
    scores = [record["score"] for record in plain.records]
    assert found["likelihood"]["score"] == pytest.approx(scores[0] + scores[2])
    assert found["likelihood"]["is_pll"]
    assert found["self_bleu"]["length"] == found["likelihood"]["num_tokens"]
    assert found["likelihood"]["made_with"]["weights_sha256"]
    assert found["causal_likelihood"]["masking"] == "causal"
    assert found["causal_likelihood"]["pppl"] > 1
    assert found["samples"]["num_empty"] == 1


def test_proteins_are_compared_by_residue(mlmfast_command):
    run = mlmfast_command.run("eval-generation", DATA / "text" / "proteins.fasta", "--input-format", "fasta")
    assert run.status == 0, run.err
    found = json.loads(run.out)
    assert found["unit"] == "character"
    assert found["self_bleu"]["length"] > 1000


def test_a_trail(mlmfast_command, tmp_path):
    (tmp_path / "trail.jsonl").write_text(TRAIL)
    run = mlmfast_command.run(
        *("eval-generation", "--trail", tmp_path / "trail.jsonl", "--burn-in", "2", "--lags", "3"),
        *("--plot", tmp_path / "energy.svg"),
    )
    assert run.status == 0, run.err
    found = json.loads(run.out)
    assert set(found) == {"trail", "made_with"}
    (chain,) = found["trail"]["chains"]
    assert (chain["num_records"], chain["acceptance_rate"], chain["edit_rate"]) == (10, 0.5, 0.5)
    assert len(chain["autocorrelation"]) == 3
    assert b"<svg" in (tmp_path / "energy.svg").read_bytes()
    assert "10 states of chains (1)" in run.err


def test_bad_samples(mlmfast_command, tmp_path):
    samples = tmp_path / "samples.txt"
    samples.write_bytes(b"a b c\n\xff\n" + b"word " * 100 + b"\n")
    run = mlmfast_command.run("eval-generation", samples)
    assert run.status == 1
    assert f"{samples}, line 2: invalid UTF-8" in run.err
    run = mlmfast_command.run("eval-generation", samples, "--on-error", "skip", "--model", BERT)
    assert run.status == 3
    found = json.loads(run.out)
    assert (found["samples"]["num_texts"], found["samples"]["num_skipped"]) == (2, 1)
    assert (found["likelihood"]["num_scored"], found["likelihood"]["num_skipped"]) == (1, 1)
    samples.write_text("a b c\n" + "word " * 100 + "\n")
    run = mlmfast_command.run("eval-generation", samples, "--model", BERT)
    assert run.status == 1
    assert f"{samples}, line 2: " in run.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "nothing to evaluate"),
        (("--trail", "t", "--references", "r"), "name the file of samples"),
        ((GPT, "--unit", "token"), "name the --model"),
        ((GPT, "--plot", "p.png"), "are for a --trail"),
        (("--trail", "t", "--plot", "p.gif"), "a plot is written as"),
        ((GPT, "--output", GPT), "is the input, too"),
        ((GPT, "--output", "figures.json.gz"), "outputs are not compressed"),
        (("-", "--references", "-"), "standard input can be read once"),
        ((GPT, "--field", "text"), "a field ('text') was named"),
        ((GPT, "--output", "none/figures.json"), "there is no folder none"),
        (("--trail", "t", "--plot", "none/p.png"), "there is no folder none"),
        (("--trail", "t", "--plot", "p.png", "--output", "./p.png"), "reads or writes this file, too"),
    ],
)
def test_options_that_do_not_fit(mlmfast_command, tmp_path, options, said):
    run = mlmfast_command.run("eval-generation", *options)
    assert run.status == 2
    assert said in run.err


def test_a_broken_trail_is_named(mlmfast_command, tmp_path):
    (tmp_path / "trail.jsonl").write_text("{}\n")
    run = mlmfast_command.run("eval-generation", "--trail", tmp_path / "trail.jsonl")
    assert run.status == 1
    assert "trail.jsonl: line 1: 'chain' is missing; expected a whole number from 0" in run.err
