"""`mlmfast variants`: what goes in, what comes out, what is refused."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import numpy as np
import pytest
from command_line import DATA, MODELS, Finished

import mlmfast
from mlmfast.proteins import VariantScorer

FASTA = DATA / "proteins" / "heavy_chain.fasta"
SEQUENCE = FASTA.read_text().split()[1]
SAPIENS = MODELS / "sapiens-vh"
RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
MUTANTS = ["Q1E", "V2L:L3K", "S120A", "Q4E"]
MEASURED = [0.5, -1.0, 0.25, None]


@pytest.fixture(scope="module")
def scores() -> list[float]:
    """Of MUTANTS, by the Python interface."""
    with mlmfast.load(SAPIENS, workers=1) as scorer:
        return VariantScorer(scorer, SEQUENCE).score(MUTANTS).tolist()


@pytest.fixture
def run(mlmfast_command):
    """Runs with one model, one thread and the heavy chain, unless told otherwise."""

    def start(
        *args: object, stdin: bytes = b"", models=(SAPIENS,), wild_type=("--wild-type", FASTA)
    ) -> Finished:
        chosen = [x for model in models for x in ("--model", model)]
        return mlmfast_command.run("variants", *args, *chosen, *wild_type, "--workers", 1, stdin=stdin)

    return start


def table(*rows: tuple[object, ...], delimiter: str = ",") -> bytes:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows(rows)
    return out.getvalue().encode()


HEADER = ("note", "mutant", "DMS_score")
TABLE = [HEADER, *((f'say "{k}",\n', m, y) for k, (m, y) in enumerate(zip(MUTANTS, MEASURED, strict=True)))]


def rows_of(out: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(out.decode(), newline="")))


def floats(rows: list[dict], column: str = "score") -> list[float]:
    return [float(row[column]) for row in rows]


def test_columns_stay_and_scores_are_added(run, scores) -> None:
    done = run("-", stdin=table(*TABLE))
    assert done.status == 0, done.err
    rows = rows_of(done.out)
    assert list(rows[0]) == [*HEADER, "score"]
    assert [row["note"] for row in rows] == [row[0] for row in TABLE[1:]]
    assert [row["mutant"] for row in rows] == MUTANTS
    assert floats(rows) == pytest.approx(scores, abs=1e-6)
    assert "4 records (0 skipped with an error), 5 rows computed" in done.err


def test_spearman_is_said_and_kept(run, scores, tmp_path) -> None:
    (tmp_path / "in.csv.gz").write_bytes(gzip.compress(table(*TABLE)))
    done = run(tmp_path / "in.csv.gz", "--output", tmp_path / "out.csv")
    ranks = [np.argsort(np.argsort(x)) for x in (scores[:3], MEASURED[:3])]
    expected = np.corrcoef(*ranks)[0, 1]
    assert f"Spearman of score and DMS_score over 3 variants: {expected:.4f}" in done.err
    meta = json.loads((tmp_path / "out.csv.meta.json").read_text())
    assert meta["summary"]["spearman"]["score"] == pytest.approx(expected)
    assert meta["settings"]["wild_type"] == SEQUENCE
    assert meta["settings"]["convention"] == "masked-marginals"
    assert len(meta["settings"]["models"][0]["weights_sha256"]) == 64


@pytest.mark.parametrize("output_format", ["csv", "tsv", "jsonl"])
@pytest.mark.parametrize("input_format", ["csv", "tsv", "text"])
def test_formats(run, scores, input_format, output_format) -> None:
    lines = "".join(f"{mutant}\n" for mutant in MUTANTS).encode()
    content = {
        "csv": table(("mutant",), *((m,) for m in MUTANTS)),
        "tsv": table(("mutant",), *((m,) for m in MUTANTS), delimiter="\t"),
        "text": lines,
    }[input_format]
    done = run("--input-format", input_format, "--format", output_format, "--quiet", stdin=content)
    assert (done.status, done.err) == (0, "")
    if output_format == "jsonl":
        rows = done.records
    elif output_format == "tsv":
        rows = done.rows
    else:
        rows = rows_of(done.out)
    assert [list(row) for row in rows] == [["mutant", "score"]] * 4
    assert [row["mutant"] for row in rows] == MUTANTS
    assert floats(rows) == pytest.approx(scores, abs=1e-6)


def test_several_models(run, scores) -> None:
    done = run("--overlong", "window", stdin=table(*TABLE), models=(SAPIENS, MODELS / "esm2"))
    assert done.status == 0, done.err
    rows = rows_of(done.out)
    assert list(rows[0]) == [*HEADER, "score", "score_1", "score_2"]
    assert floats(rows, "score_1") == pytest.approx(scores, abs=1e-6)
    for row in rows:
        assert float(row["score"]) == pytest.approx((float(row["score_1"]) + float(row["score_2"])) / 2)
    for column in ("score", "score_1", "score_2"):
        assert f"Spearman of {column} and DMS_score" in done.err


def test_named_columns_and_an_offset(run, scores) -> None:
    content = table(("score", "change", "y"), (1, "Q101E", 2), (1, "S220A", 3))
    options = ("--offset", 100, "--mutant-column", "change", "--score-column", "y", "--output-column", "ours")
    done = run(*options, stdin=content)
    assert done.status == 0, done.err
    assert floats(rows_of(done.out), "ours") == pytest.approx([scores[0], scores[2]], abs=1e-6)
    assert "Spearman of ours and y over 2 variants" in done.err


def test_the_wild_type_from_the_command_line(run, scores) -> None:
    done = run("--input-format", "text", stdin=b"Q1E\n", wild_type=("--sequence", SEQUENCE.lower()))
    assert floats(rows_of(done.out)) == pytest.approx(scores[:1], abs=1e-6)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("", "Q2E", ""), "line 3: Q2E: residue 2 of the wild type is V, not Q"),
        (("", "S121A", ""), "line 3: S121A: the wild type has no residue 121, only 1 to 120"),
        (("", "Q1E:Q1K", ""), "line 3: 'Q1E:Q1K' has two mutations of residue 1"),
        (("", "", ""), "line 3: '' is not a mutation"),
        (("", "Q1E", "high"), "line 3: the measurement is 'high'; expected a finite number, or nothing"),
        (("", "Q1E", "-inf"), "line 3: the measurement is '-inf'; expected a finite number, or nothing"),
        (("Q1E",), "line 3: 1 columns, but the header has 3"),
    ],
)
def test_a_bad_record(run, row, message) -> None:
    content = table(HEADER, ("", "V2L", 1), row, ("", "S120A", 2))
    done = run(stdin=content)
    assert done.status == 1
    assert f"mlmfast: error: {message}" in done.err
    assert [r["mutant"] for r in rows_of(done.out)] == ["V2L"]
    done = run("--on-error", "skip", stdin=content)
    assert done.status == 3
    rows = rows_of(done.out)
    assert [bool(r["score"]) for r in rows] == [True, False, True]
    assert message.removeprefix("line 3: ") in rows[1]["error"]
    assert [rows[0]["error"], rows[2]["error"]] == ["", ""]
    assert "3 records (1 skipped with an error)" in done.err
    assert "over 2 variants" in done.err


@pytest.mark.parametrize(
    ("sequence", "message"),
    [
        ("E" + SEQUENCE[1:], None),
        ("", None),
        (SEQUENCE, "mutated_sequence has Q as its residue 1, where the mutations give E"),
        ("E" + SEQUENCE[2:], "mutated_sequence has 119 residues, where the wild type has 120"),
    ],
)
def test_mutated_sequences_are_checked(run, sequence, message) -> None:
    done = run(stdin=table(("mutant", "mutated_sequence"), ("Q1E", sequence)))
    assert done.status == (0 if message is None else 1)
    if message is not None:
        assert f"line 2: {message}" in done.err


def test_a_table_without_rows(run) -> None:
    done = run(stdin=table(HEADER))
    assert (done.status, rows_of(done.out)) == (0, [])
    assert done.out == b"note,mutant,DMS_score,score\n"
    assert "Spearman of score and DMS_score over 0 variants: not defined" in done.err


@pytest.mark.parametrize(
    ("content", "options", "status", "message"),
    [
        (b"", (), 1, "line 1: the table is empty; it needs a header row"),
        (b"name\nQ1E\n", (), 1, "line 1: no column 'mutant'; the header has: 'name'"),
        (b"mutant\nQ1E\n", ("--score-column", "y"), 1, "line 1: no column 'y'"),
        (b"mutant,score\nQ1E,1\n", (), 2, "the input has a column 'score' already"),
        (b"Q1E\n", ("--input-format", "text", "--score-column", "y"), 2, "text input has no columns"),
        (b"mutant\nQ1E\n", ("--heat-map", "map.png"), 2, "add --all"),
        (b"mutant\nQ1E\n", ("--all", "-"), 2, "leave out the file of variants"),
        (b"mutant\nQ1E\n", ("--all", "--mutant-column", "x"), 2, "leave out --mutant-column"),
        (b"", ("--all", "--output-column", "x"), 2, "leave out --output-column"),
        (b"", ("--all", "--heat-map", "none/map.png"), 2, "there is no folder none"),
        (b"", ("--all", "--heat-map", "map.svg"), 2, "expected a name that ends with .png"),
        (b"", ("--all", "--heat-map", "m.png", "--output", "./m.png"), 2, "reads or writes this file, too"),
        (b"mutant,mutant\nQ1E,Q1E\n", (), 1, "more than one column 'mutant'"),
        (b"mutant,mutated_sequence,mutated_sequence\n", (), 1, "more than one column 'mutated_sequence'"),
        (b"x,x,mutant\n1,2,Q1E\n", ("--format", "jsonl"), 2, "would have more than one column 'x'"),
        (b"mutant\nQ1E\n", ("--on-error", "skip", "--output-column", "error"), 2, "column 'error'"),
        (b"mutant\nQ1E\n", ("--sequence", "MKV"), 2, "give the wild type once"),
        (b"mutant\nQ1E\n", ("--context", "mask", "--convention", "pppl"), 2, "context 'mask' is for masked"),
    ],
)
def test_what_is_refused(run, content, options, status, message) -> None:
    done = run(*options, stdin=content)
    assert done.status == status, done.err
    assert message in done.err


def test_columns_of_one_name_stay_in_a_table(run) -> None:
    done = run(stdin=b"x,x,mutant\n1,2,Q1E\n")
    assert done.out.startswith(b"x,x,mutant,score\n1,2,Q1E,-")


def test_standard_input_is_read_once(run) -> None:
    done = run(stdin=b"mutant\nQ1E\n", wild_type=("--wild-type", "-"))
    assert done.status == 2
    assert "standard input can be read once" in done.err
    assert len(rows_of(run("--all", stdin=b">a\nMKV\n", wild_type=("--wild-type", "-")).out)) == 3


def test_unknown_residues_are_said(run) -> None:
    done = run("--input-format", "text", stdin=b"X2A\n", wild_type=("--sequence", "MXKX"))
    assert "2 residues of the wild type are unknown tokens to a model" in done.err
    done = run("--input-format", "text", stdin=b"M1A\n", wild_type=("--sequence", "MAKV"))
    assert "unknown" not in done.err


@pytest.mark.parametrize(
    ("entries", "found"), [(b"", "no entry"), (b">a\nMK\n>b\nMV\n", "more than one entry")]
)
def test_a_wild_type_file_has_one_entry(run, tmp_path, entries, found) -> None:
    (tmp_path / "wild.fasta").write_bytes(entries)
    done = run(stdin=table(*TABLE), wild_type=("--wild-type", tmp_path / "wild.fasta"))
    assert done.status == 1
    assert f"wild.fasta: {found}, where the wild type alone was expected" in done.err


@pytest.mark.parametrize("output_format", ["csv", "tsv", "jsonl"])
def test_a_broken_run_goes_on(run, tmp_path, output_format) -> None:
    good = table(*TABLE)
    bad = good.replace(MUTANTS[2].encode(), b"K1R")
    (tmp_path / "in.csv").write_bytes(good)
    options = (tmp_path / "in.csv", "--format", output_format, "--output")
    whole = run(*options, tmp_path / "whole")
    (tmp_path / "in.csv").write_bytes(bad)
    broken = run(*options, tmp_path / "out")
    assert broken.status == 1
    assert "K1R: residue 1 of the wild type is Q" in broken.err
    (tmp_path / "in.csv").write_bytes(good)
    assert "continue it with --resume" in run(*options, tmp_path / "out").err
    resumed = run(*options, tmp_path / "out", "--resume")
    assert resumed.status == 0, resumed.err
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    assert [line for line in resumed.err.splitlines() if "Spearman" in line] == [
        line for line in whole.err.splitlines() if "Spearman" in line
    ]
    assert "is complete already" in run(*options, tmp_path / "out", "--resume").err
    other = run(*options, tmp_path / "out", "--resume", "--convention", "wt-marginals")
    assert other.status == 1
    assert "started with other settings" in other.err


@pytest.mark.parametrize("output_format", ["csv", "tsv", "jsonl"])
def test_cells_come_out_as_they_went_in(run, tmp_path, output_format) -> None:
    """Line ends of all kinds, quotes and delimiters in cells; a broken run goes on behind them."""
    notes = ["a\rb", 'say "x",\t\n', "\r\n", "\\t \u2028"]
    good = table(("note", "mutant"), *zip(notes, MUTANTS, strict=True))
    (tmp_path / "in.csv").write_bytes(good.replace(MUTANTS[3].encode(), b"K1R"))
    options = (tmp_path / "in.csv", "--format", output_format, "--output", tmp_path / "out")
    assert run(*options).status == 1
    (tmp_path / "in.csv").write_bytes(good)
    with (tmp_path / "out").open("ab") as file:
        file.write(b'"half a rec')  # what a kill may leave behind the last safe record
    done = run(*options, "--resume")
    assert done.status == 0, done.err
    out = (tmp_path / "out").read_bytes()
    if output_format == "csv":
        assert [row["note"] for row in rows_of(out)] == notes
    elif output_format == "jsonl":
        assert [json.loads(line)["note"] for line in out.splitlines()] == notes
    else:
        assert out.count(b"\n") == 5
        assert b"\r" not in out


def test_what_an_output_is_not_continued_with(run, tmp_path) -> None:
    rows = [("mutant", "other", "DMS_score"), ("Q1E", "V2L", 1), ("V2L", "Q1E", 2), ("K1R", "Q1E", 3)]
    options = (tmp_path / "in.csv", "--output", tmp_path / "out", "--resume")
    (tmp_path / "in.csv").write_bytes(table(*rows))
    assert run(*options).status == 1
    done = run(*options, "--mutant-column", "other")
    assert (done.status, "started with other settings" in done.err) == (1, True)
    (tmp_path / "in.csv").write_bytes(table(*rows[:2]))
    done = run(*options)
    assert (done.status, "the input is shorter" in done.err) == (1, True)


def test_all_substitutions(run, scores, tmp_path) -> None:
    done = run("--all", "--output", tmp_path / "all.csv", "--heat-map", tmp_path / "map.png", "--offset", 10)
    assert done.status == 0, done.err
    assert "120 records (0 skipped with an error), 120 rows computed" in done.err
    rows = rows_of((tmp_path / "all.csv").read_bytes())
    assert list(rows[0]) == ["position", "wild_type", *RESIDUES]
    assert "".join(row["wild_type"] for row in rows) == SEQUENCE
    assert [int(row["position"]) for row in rows] == list(range(11, 131))
    assert [float(row[row["wild_type"]]) for row in rows] == [0.0] * 120
    assert [float(rows[0]["E"]), float(rows[119]["A"])] == pytest.approx([scores[0], scores[2]], abs=1e-6)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    again = run("--all", "--output", tmp_path / "all.csv", "--resume", "--offset", 10)
    assert "is complete already" in again.err


def test_all_substitutions_from_one_row(run) -> None:
    done = run("--all", "--convention", "wt-marginals", "--format", "jsonl")
    assert "120 records (0 skipped with an error), 1 rows computed" in done.err
    assert done.records[5]["wild_type"] == SEQUENCE[5]
    assert done.records[5][SEQUENCE[5]] == 0


def test_the_output_is_not_the_input(run, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(table(*TABLE))
    done = run(tmp_path / "in.csv", "--output", tmp_path / "in.csv")
    assert done.status == 2
    assert "is the input, too" in done.err
