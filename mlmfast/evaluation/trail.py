"""The trail of a sampler: JSON lines that say how each chain went, one state of one chain a line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mlmfast.errors import InputError
from mlmfast.io.lines import Source, decode, open_input, physical_lines, without_line_end
from mlmfast.types import JsonRecord

FIELDS = "chain, step, text or tokens, energy, accepted"
LARGEST = 2**53
"""Of chain and step: whole numbers that a float holds, too."""


@dataclass(frozen=True)
class TrailRecord:
    """One state of one chain, after `step` steps of it.

    state: the text, or its tokens. energy: of the state, where the sampler knows it; its target is
    proportional to exp(-energy). accepted: whether the step's proposal was; None before the first step and
    for samplers that always accept.
    """

    chain: int
    step: int
    state: str | tuple[str | int, ...]
    energy: float | None
    accepted: bool | None


def read_trail(source: Source) -> Iterator[TrailRecord]:
    """The records of a trail, in order, plain or ".gz"; chains may take turns, each with steps that go up.

    Raises InputError with the line for anything else.
    """
    last_steps: dict[int, int] = {}
    with open_input(source) as stream:
        for line, raw in enumerate(physical_lines(stream), 1):
            record = trail_record(decode(without_line_end(raw), line), line)
            before = last_steps.get(record.chain)
            if before is not None and record.step <= before:
                raise InputError(
                    f"step {record.step} of chain {record.chain} comes after its step {before}; the steps of "
                    "a chain must go up (two runs in one file?)",
                    line=line,
                )
            last_steps[record.chain] = record.step
            yield record


def trail_record(content: str, line: int) -> TrailRecord:
    """The record of one line. Raises InputError."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON ({error}); write one object per line with {FIELDS}", line=line) from error
    if not isinstance(value, dict):
        raise InputError(f"{content:.40} is not a JSON object; expected one with {FIELDS}", line=line)
    return TrailRecord(
        chain=whole_number(value, "chain", line),
        step=whole_number(value, "step", line),
        state=state_of(value, line),
        energy=energy_of(value, line),
        accepted=accepted_of(value, line),
    )


def whole_number(value: JsonRecord, name: str, line: int) -> int:
    number = value.get(name)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= LARGEST:
        raise InputError(
            f"{name!r} is {shown(value, name)}; expected a whole number from 0 to 2^53", line=line
        )
    return number


def state_of(value: JsonRecord, line: int) -> str | tuple[str | int, ...]:
    text, tokens = value.get("text"), value.get("tokens")
    if isinstance(tokens, list) and all(is_token(token) for token in tokens):
        return tuple(tokens)
    if tokens is None and isinstance(text, str):
        return text
    raise InputError(
        f"'tokens' is {shown(value, 'tokens')} and 'text' {shown(value, 'text')}; expected a list of strings "
        "or of ids, or a string",
        line=line,
    )


def is_token(token: object) -> bool:
    return isinstance(token, (str, int)) and not isinstance(token, bool)


def energy_of(value: JsonRecord, line: int) -> float | None:
    energy: Any = value.get("energy")
    if energy is None:
        return None
    try:
        if isinstance(energy, (int, float)) and not isinstance(energy, bool) and math.isfinite(energy):
            return float(energy)
    except OverflowError:  # a whole number that no float holds
        pass
    raise InputError(f"'energy' is {shown(value, 'energy')}; expected a finite number, or null", line=line)


def accepted_of(value: JsonRecord, line: int) -> bool | None:
    accepted = value.get("accepted")
    if accepted is not None and not isinstance(accepted, bool):
        raise InputError(f"'accepted' is {shown(value, 'accepted')}; expected true, false or null", line=line)
    return accepted


def shown(value: JsonRecord, name: str) -> str:
    return f"{value[name]!r:.40}" if name in value else "missing"
