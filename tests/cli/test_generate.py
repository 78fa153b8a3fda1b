"""`mlmfast generate`: what goes in, what comes out, what is refused, how a stopped run goes on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from command_line import BERT, DATA, MODELS, Finished, Terminal, num_safe, read_jsonl, read_meta
from waiting import wait_until

import mlmfast
from mlmfast.generation import GenerationSettings, StartSettings, generate, starts, text_of

SAPIENS = MODELS / "sapiens-vh"
FASTA = DATA / "proteins" / "heavy_chain.fasta"
HEAVY = FASTA.read_text().split()[1]
RESIDUES = set("ACDEFGHIKLMNPQRSTVWY")


@pytest.fixture
def run(mlmfast_command):
    """Runs with a tiny model and one thread."""

    def start(*args: object, model: Path = BERT, stdin: bytes = b"") -> Finished:
        return mlmfast_command.run("generate", "--model", model, "--workers", 1, *args, stdin=stdin)

    return start


def texts(finished: Finished) -> list[str]:
    assert finished.status == 0, finished.err
    return finished.out.decode("utf-8").splitlines()


def test_the_command_is_the_python_interface(run) -> None:
    found = texts(run("--num", 5, "--length", "4-9", "--sweeps", 2, "--seed", 7, "--top-k", 50))
    settings = GenerationSettings(sweeps=2, seed=7, top_k=50)
    with mlmfast.load(BERT, workers=1) as scorer:
        begins = starts(scorer, [""] * 5, StartSettings(length="4-9"), seed=7)
        chains = list(generate(scorer, begins, settings))
        tokenizer = scorer.files.tokenizer
        assert found == [text_of(states[-1], tokenizer) for states in chains]
    assert len(set(found)) == 5


@pytest.mark.parametrize(
    "options",
    [
        ("--num-together", 1),
        ("--num-together", 3, "--max-batch-tokens", 40),
        ("--workers", 2),
    ],
)
def test_a_chain_does_not_depend_on_those_beside_it(run, options: tuple[object, ...]) -> None:
    asked = ("--length", "4-9", "--steps", 12, "--seed", 3)
    together = texts(run("--num", 6, *asked))
    assert texts(run("--num", 6, *asked, *options)) == together
    assert texts(run("--num", 2, *asked)) == together[:2]
    assert texts(run("--num", 6, "--length", "4-9", "--steps", 12, "--seed", 4)) != together


@pytest.mark.parametrize("sampler", ["gibbs", "sequential", "parallel", "block", "mask_predict", "mh"])
def test_every_sampler_fills_a_template(run, sampler: str) -> None:
    given = ("--text", "the [MASK] at the [MASK][MASK] of", "--sampler", sampler, "--format", "jsonl")
    found = run(*given, "--num", 4, "--steps", 6)
    assert found.status == 0, found.err
    assert [record["chain"] for record in found.records] == [0, 1, 2, 3]
    for record in found.records:
        tokens = record["tokens"]
        assert len(tokens) == 7
        assert (tokens[0], tokens[2:4], tokens[6]) == ("the", ["at", "the"], "of")
        assert not {"[MASK]", "[CLS]", "[SEP]", "[PAD]", "[UNK]"} & set(tokens)
        assert (record["energy"] is None) == (sampler != "mh")


def test_a_file_of_texts_each_with_several_chains(run) -> None:
    found = texts(run("-", "--num", 2, "--length", 6, stdin=b"the cat\nof [MASK] at\n"))
    assert len(found) == 4
    assert all(text.startswith("the cat") for text in found[:2])
    assert all(text.startswith("of") and "at" in text for text in found[2:])
    source = b'{"id": "a", "text": "the cat"}\n'
    assert texts(run("-", "--input-format", "jsonl", "--length", 6, stdin=source)) == found[:1]


@pytest.mark.parametrize("kind", ["raw", "norm"])
def test_energies_are_those_of_the_scorer(run, kind: str) -> None:
    found = run(
        *("--length", 12, "--num", 3, "--energy", kind, "--sweeps", 1, "--format", "jsonl"), model=SAPIENS
    )
    assert found.status == 0, found.err
    energies = [record["energy"] for record in found.records]
    with mlmfast.load(SAPIENS, workers=1) as scorer:
        expected = scorer.energy([record["text"] for record in found.records], kind=kind)
    assert energies == pytest.approx(expected, abs=1e-4)
    assert f"mean energy {sum(energies) / 3:.2f}" in found.err


@pytest.mark.parametrize("sampler", ["gibbs", "sequential", "parallel", "block", "mask_predict"])
def test_trails_of_samplers_without_proposals(run, mlmfast_command, sampler: str, tmp_path: Path) -> None:
    trail = tmp_path / "trail.jsonl"
    made = run(
        *("--text", "the [MASK] at [MASK][MASK]", "--sampler", sampler, "--energy", "raw", "--steps", 9),
        *("--num", 2, "--record-every", 3, "--format", "jsonl", "--output", trail),
    )
    assert made.status == 0, made.err
    records = read_jsonl(trail.read_bytes())
    assert [(r["chain"], r["step"]) for r in records] == [(c, s) for c in range(2) for s in (0, 3, 6, 9)]
    assert records[0]["tokens"] == ["the", "[MASK]", "at", "[MASK]", "[MASK]"]
    assert records[0]["energy"] is None
    figures = mlmfast_command.run("eval-generation", "--trail", trail)
    assert figures.status == 0, figures.err
    found = json.loads(figures.out)["trail"]
    assert (found["num_chains"], found["num_records"], found["acceptance_rate"]) == (2, 8, None)
    energies = [r["energy"] for r in records if r["energy"] is not None]
    assert found["mean_energy"] == pytest.approx(sum(energies) / len(energies))
    assert found["edit_rate"] > 0


def test_a_trail_goes_into_the_evaluation(run, mlmfast_command, tmp_path: Path) -> None:
    trail = tmp_path / "trail.jsonl"
    made = run(
        *("--text", "the cat at the end of it", "--sampler", "mh", "--energy", "norm", "--steps", 30),
        *("--num", 2, "--record-every", 1, "--format", "jsonl", "--output", trail),
    )
    assert made.status == 0, made.err
    records = read_jsonl(trail.read_bytes())
    assert [(r["chain"], r["step"]) for r in records] == [(c, s) for c in range(2) for s in range(31)]
    assert records[0]["accepted"] is None
    assert {r["accepted"] for r in records if r["step"]} <= {True, False}
    figures = mlmfast_command.run("eval-generation", "--trail", trail)
    assert figures.status == 0, figures.err
    found = json.loads(figures.out)["trail"]
    proposals = [r["accepted"] for r in records if r["step"]]
    assert found["acceptance_rate"] == pytest.approx(sum(proposals) / len(proposals))


def test_proteins_are_redesigned_where_they_are_free(run, tmp_path: Path) -> None:
    output = tmp_path / "designs.fasta"
    made = run(
        *(FASTA, "--input-format", "fasta", "--positions", "26-33,97-100", "--num", 3, "--sweeps", 1),
        *("--sampler", "sequential", "--format", "fasta", "--output", output),
        model=SAPIENS,
    )
    assert made.status == 0, made.err
    lines = output.read_text().splitlines()
    assert [line.split()[0] for line in lines[::2]] == [">chain-000000", ">chain-000001", ">chain-000002"]
    assert all("start=" in line for line in lines[::2])
    free = {*range(25, 33), *range(96, 100)}
    for design in lines[1::2]:
        assert len(design) == len(HEAVY)
        assert set(design) <= RESIDUES
        assert {i for i, (a, b) in enumerate(zip(design, HEAVY, strict=True)) if a != b} <= free
    assert len(set(lines[1::2])) == 3


def test_alphabets(run, tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("\ufeffV\r\nI\n\n", encoding="utf-8")
    asked = ("--length", 40, "--allow", "AL", "--allow-file", tmp_path / "more.txt", "--forbid", "L")
    (found,) = texts(run(*asked, "--sampler", "parallel", "--steps", 1, model=SAPIENS))
    assert len(found) == 40
    assert set(found) <= set("AVI")
    (tmp_path / "none.txt").write_text("\n")
    refused = run("--length", 4, "--forbid-file", tmp_path / "none.txt")
    assert (refused.status, "there is no token in it" in refused.err) == (2, True)
    refused = run("--length", 4, "--allow-file", tmp_path / "absent.txt")
    assert (refused.status, "cannot be read" in refused.err) == (2, True)
    for option in ("--allow-file", "--forbid-file"):
        refused = run("--length", 4, option, tmp_path / "more.txt", "--output", tmp_path / "more.txt")
        assert (refused.status, "is the input, too" in refused.err) == (2, True)


def test_what_is_written_beside_an_output(run, tmp_path: Path) -> None:
    output = tmp_path / "texts.txt"
    made = run("--length", 5, "--num", 3, "--steps", 4, "--forbid", "the", "--output", output)
    assert made.status == 0, made.err
    assert "3 chains, 12 steps" in made.err
    meta = read_meta(output)
    assert meta["settings"]["sampler"] == "gibbs"
    assert meta["settings"]["length"] == "5"
    assert meta["settings"]["forbid"] == ["the"]
    assert meta["settings"]["weights_sha256"]
    assert meta["settings"]["environment"]["num_together"] == 64
    assert meta["progress"]["complete"] is True
    assert (meta["summary"]["chains"], meta["summary"]["steps"]) == (3, 12)
    again = run("--length", 5, "--num", 3, "--steps", 4, "--forbid", "the", "--output", output, "--resume")
    assert (again.status, "complete already" in again.err) == (0, True)


def test_a_stopped_run_goes_on_with_the_first_chain_not_written(run, tmp_path: Path) -> None:
    asked = ("--num", 2, "--length", 6, "--steps", 8, "--num-together", 1, "--format", "jsonl")
    seeds, whole, parts = (tmp_path / name for name in ("seeds.txt", "whole.jsonl", "parts.jsonl"))
    seeds.write_text("the cat\nof it\n")
    assert run(seeds, *asked, "--energy", "raw", "--output", whole).status == 0
    seeds.write_text("the cat\nthe [SEP]\n")
    stopped = run(seeds, *asked, "--energy", "raw", "--output", parts)
    assert stopped.status == 1
    assert "line 2: [SEP] is a special token" in stopped.err
    assert len(read_jsonl(parts.read_bytes())) == 2
    refused = run(seeds, *asked, "--energy", "norm", "--output", parts, "--resume")
    assert (refused.status, "energy" in refused.err) == (1, True)
    seeds.write_text("a cat\nof it\n")
    refused = run(seeds, *asked, "--energy", "raw", "--output", parts, "--resume")
    assert (refused.status, "input differs" in refused.err) == (1, True)
    seeds.write_text("the cat\nof it\n")
    going_on = run(seeds, *asked, "--energy", "raw", "--output", parts, "--resume", "--num-together", 64)
    assert going_on.status == 0, going_on.err
    assert parts.read_bytes() == whole.read_bytes()
    summaries = [read_meta(path)["summary"] for path in (whole, parts)]
    for name in ("chains", "steps", "mean_energy"):
        assert summaries[0][name] == pytest.approx(summaries[1][name])


@pytest.mark.parametrize(
    ("stop", "status", "sampler"), [(signal.SIGTERM, 143, "gibbs"), (signal.SIGINT, 130, "mh")]
)
def test_a_stopped_run_keeps_its_chains_and_ends_up_the_same(
    mlmfast_command, stop: int, status: int, sampler: str, tmp_path: Path
) -> None:
    """Through a pipe that holds the run in its middle, until chains are on disk."""
    output, whole, source, pipe = (tmp_path / name for name in ("out", "whole", "seeds.txt", "pipe"))
    seeds = [f"the cat {'of ' * (number % 5)}\n" for number in range(12)]
    source.write_text("".join(seeds))
    os.mkfifo(pipe)
    asked = ("--model", BERT, "--workers", 1, "--num", 2, "--steps", 20, "--sampler", sampler)
    asked = ("generate", *asked, "--record-every", 7, "--format", "jsonl")
    running = mlmfast_command.start(*asked, "-", "--num-together", 4, "--output", output, stdin=pipe)
    with pipe.open("wb", buffering=0) as producer:
        producer.write("".join(seeds[:5]).encode())
        wait_until(lambda: num_safe(output) > 0)
        running.send(stop)
        stopped = running.wait()
    assert stopped.status == status
    assert "continue with --resume" in stopped.err
    written = output.read_bytes()
    assert 4 <= len({record["chain"] for record in read_jsonl(written)}) <= 8
    going_on = mlmfast_command.run(*asked, source, "--output", output, "--resume")
    assert going_on.status == 0, going_on.err
    assert mlmfast_command.run(*asked, source, "--output", whole).status == 0
    assert output.read_bytes() == whole.read_bytes()
    assert whole.read_bytes().startswith(written)


def test_a_bar_on_a_terminal(mlmfast_command) -> None:
    asked = ("generate", "--model", BERT, "--workers", 1, "--length", 4, "--num", 3)
    with Terminal() as terminal:
        made = mlmfast_command.start(*asked, stderr=terminal.path).wait()
    assert (made.status, len(made.out.splitlines())) == (0, 3)
    assert "generating" in terminal.shown
    assert "3 chains, 120 steps" in terminal.shown
    with Terminal() as terminal:
        mlmfast_command.start(*asked, "--quiet", stderr=terminal.path).wait()
    assert terminal.shown == ""


@pytest.mark.parametrize(
    ("args", "status", "reason"),
    [
        ((), 2, "nothing to start from"),
        (("-", "--text", "the"), 2, "given twice"),
        (("--length", 3, "--field", "x", "-"), 2, "text input has none"),
        (("--length", 3, "--field", "x"), 2, "are of a file of texts"),
        (("--text", "the", "--input-format", "jsonl"), 2, "are of a file of texts"),
        (("--length", 3, "--block-size", 2), 2, "block_size 2 is of block alone, not gibbs"),
        (("--length", "3-1"), 2, "length is '3-1'"),
        (("--length", 3, "--format", "fasta"), 2, "fasta is for protein models"),
        (("--length", 3, "--record-every", 2), 2, "record_every needs jsonl"),
        (("--length", 3, "--allow", "zebra"), 2, "'zebra' is no token"),
        (("--length", 3, "--sweeps", 2, "--steps", 2), 2, "sweeps"),
        (("--length", 3, "--temperature", 0), 2, "temperature"),
        (("--length", 63), 1, "error: 65 tokens, but the model takes 64"),
        (("--text", "the cat", "--leader", 9), 1, "no token is free"),
        (("--length", 3, "--output", "x.gz"), 2, "not compressed"),
        (("--length", 3, "--resume"), 2, "cannot be resumed"),
    ],
)
def test_what_is_refused(run, args: tuple[object, ...], status: int, reason: str) -> None:
    refused = run(*args)
    assert (refused.status, refused.out) == (status, b"")
    assert reason in refused.err


def test_a_student_cannot_generate(run) -> None:
    refused = run("--length", 3, model="mlmfast-mini-en-student")
    assert (refused.status, "is a student model" in refused.err) == (2, True)
