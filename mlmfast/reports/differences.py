"""Where a text differs from its reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mlmfast.extras import require

Kind = Literal["same", "wrong", "extra", "missing"]
KINDS: dict[str, Kind] = {"equal": "same", "replace": "wrong", "insert": "extra", "delete": "missing"}


@dataclass(frozen=True)
class Piece:
    """Words (or characters) of a text. text: those of the text, of a `missing` piece those of the reference;
    expected: of a `wrong` piece those of the reference."""

    kind: Kind
    text: str
    expected: str = ""


def differences(reference: str, text: str, *, by_characters: bool = False) -> tuple[Piece, ...]:
    """The pieces of the text in one of its shortest alignments with the reference (Levenshtein)."""
    opcodes = require("rapidfuzz.distance.Levenshtein", extra="nbest", purpose="a report").opcodes
    joint = "" if by_characters else " "
    expected, found = (list(t) if by_characters else t.split() for t in (reference, text))
    pieces = []
    for step in opcodes(expected, found):
        kind = KINDS[step.tag]
        before = joint.join(expected[step.src_start : step.src_end])
        after = joint.join(found[step.dest_start : step.dest_end])
        if kind == "missing":
            pieces.append(Piece(kind, before))
        else:
            pieces.append(Piece(kind, after, before if kind == "wrong" else ""))
    return tuple(pieces)
