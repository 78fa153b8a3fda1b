"""Recorded states as lines: texts, the trail of a sampler, FASTA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from mlmfast.errors import SettingsError
from mlmfast.generation.state import ChainState
from mlmfast.io.json_text import to_json
from mlmfast.tokenization import Tokenizer

OutputFormat = Literal["text", "jsonl", "fasta"]
UNKNOWN_RESIDUE = "X"


def text_of(state: ChainState, tokenizer: Tokenizer) -> str:
    """The text of a state, special tokens but the mask left out."""
    return tokenizer.decode(state.input_ids)


def check_format(output_format: OutputFormat, tokenizer: Tokenizer, record_every: int | None) -> None:
    """Raises SettingsError for a format that cannot hold what would be written."""
    if output_format == "fasta" and not tokenizer.protein:
        raise SettingsError("the format fasta is for protein models; use text or jsonl")
    if output_format != "jsonl" and record_every is not None:
        raise SettingsError(
            f"the format {output_format} holds the last state of a chain alone; record_every needs jsonl"
        )


def chain_lines(
    states: Sequence[ChainState],
    tokenizer: Tokenizer,
    output_format: OutputFormat,
    *,
    start_id: str | None = None,
) -> str:
    """The lines of one chain. text: its last text, line breaks in it written as spaces. jsonl: an object for
    every recorded state, as `mlmfast.evaluation.read_trail` reads them. fasta: its last sequence, under its
    number, the id of what it started from, its energy.
    """
    if output_format == "jsonl":
        return "".join(trail_line(state, tokenizer) for state in states)
    last = states[-1]
    text = text_of(last, tokenizer)
    if output_format == "text":
        return " ".join(text.splitlines()) + "\n"
    unknown = tokenizer.special.unknown_id
    if unknown is not None:
        text = text.replace(tokenizer.vocabulary[unknown], UNKNOWN_RESIDUE)
    start = "" if start_id is None else f" start={'_'.join(start_id.split())}"
    energy = "" if last.energy is None else f" energy={last.energy:.4f}"
    return f">chain-{last.chain:06}{start}{energy}\n{text}\n"


def trail_line(state: ChainState, tokenizer: Tokenizer) -> str:
    """A state as a JSON object; the tokens as the vocabulary writes them, masks among them."""
    left_out = tokenizer.special.all_ids - {tokenizer.special.mask_id}
    record = {
        "chain": state.chain,
        "step": state.step,
        "text": text_of(state, tokenizer),
        "tokens": [tokenizer.vocabulary[i] for i in state.input_ids.tolist() if i not in left_out],
        "energy": state.energy,
        "accepted": state.accepted,
    }
    return to_json(record) + "\n"
