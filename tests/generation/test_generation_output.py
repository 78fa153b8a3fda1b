"""Recorded states as lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hash_engine import files_of

from mlmfast.errors import SettingsError
from mlmfast.evaluation import read_trail
from mlmfast.generation import ChainState, text_of
from mlmfast.generation.output import chain_lines, check_format
from mlmfast.io import read_records
from mlmfast.tokenization import Tokenizer


def tokenizer(name: str) -> Tokenizer:
    return files_of(name).tokenizer


def state(text: str, name: str = "bert", **values: object) -> ChainState:
    ids = tokenizer(name).encode([text], parse_special=True).input_ids
    return ChainState(**{"chain": 3, "step": 0, "input_ids": ids, "energy": None, "accepted": None} | values)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("bert", "The cat, at [MASK].", "the cat, at [MASK]."),
        ("roberta", "The cat<mask>.", "The cat<mask>."),
        ("albert", "the cat", "the cat"),
        ("xlm-roberta", "the cat", "the cat"),
        ("esm2", "KAT<mask>", "KAT<mask>"),
        ("sapiens-vh", "QVQX", "QVQ<unk>"),
    ],
)
def test_texts_of_states(name: str, text: str, expected: str) -> None:
    assert text_of(state(text, name), tokenizer(name)) == expected


def test_a_trail_is_what_the_evaluation_reads(tmp_path: Path) -> None:
    states = [
        state("the [MASK]", energy=None),
        state("the ca", step=2, energy=12.5, accepted=True),
        state("the cat", step=4, energy=-3.0, accepted=False),
    ]
    lines = chain_lines(states, tokenizer("bert"), "jsonl")
    path = tmp_path / "trail.jsonl"
    path.write_text(lines)
    found = list(read_trail(path))
    assert [(r.chain, r.step, r.energy, r.accepted) for r in found] == [
        (3, 0, None, None),
        (3, 2, 12.5, True),
        (3, 4, -3.0, False),
    ]
    assert [r.state for r in found] == [("the", "[MASK]"), ("the", "ca"), ("the", "ca", "##t")]
    assert [json.loads(line)["text"] for line in lines.splitlines()] == ["the [MASK]", "the ca", "the cat"]


def test_lines_of_text_hold_one_text_each() -> None:
    assert chain_lines([state("the"), state("the cat")], tokenizer("bert"), "text") == "the cat\n"
    broken = state("the\ncat\r\n\u2028sat", "roberta")
    assert text_of(broken, tokenizer("roberta")) == "the\ncat\r\n\u2028sat"
    assert chain_lines([broken], tokenizer("roberta"), "text").rstrip("\n").split() == ["the", "cat", "sat"]
    assert chain_lines([broken], tokenizer("roberta"), "text").splitlines() == ["the cat  sat"]


def test_fasta_is_read_back(tmp_path: Path) -> None:
    sequence = state("QVQLX", "sapiens-vh", chain=12, energy=3.14159)
    lines = chain_lines([sequence], tokenizer("sapiens-vh"), "fasta", start_id="heavy chain")
    assert lines == ">chain-000012 start=heavy_chain energy=3.1416\nQVQLX\n"
    (tmp_path / "out.fasta").write_text(lines)
    (record,) = read_records(tmp_path / "out.fasta", input_format="fasta")
    assert (record.id, record.text) == ("chain-000012", "QVQLX")
    plain = chain_lines([state("KA", "esm2", chain=0)], tokenizer("esm2"), "fasta")
    assert plain == ">chain-000000\nKA\n"


def test_formats_that_cannot_hold_what_is_asked() -> None:
    with pytest.raises(SettingsError, match="fasta is for protein models"):
        check_format("fasta", tokenizer("bert"), None)
    for name, output_format in (("bert", "text"), ("esm2", "fasta")):
        with pytest.raises(SettingsError, match="the last state of a chain alone"):
            check_format(output_format, tokenizer(name), 5)
    check_format("jsonl", tokenizer("bert"), 5)
    check_format("fasta", tokenizer("esm2"), None)
