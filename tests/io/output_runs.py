"""Runs that fill a resumable output, and what they must leave behind."""

from __future__ import annotations

import json

from mlmfast.io import ResumableOutput, header_line

SETTINGS = {"model": "m", "masking": "original", "weights": {"sha256": "ab"}, "environment": {"workers": 2}}
HEADER = header_line(per="text", format="tsv")


def record(i: int) -> tuple[str, str]:
    """The i-th record's output and the input it answers; lengths differ, one is empty, one long."""
    return "" if i == 3 else f"{i}\té" + "x" * (5_000 if i == 7 else i % 5) + "\n", f"input {i}"


def run(path, count, *, resume=False, settings=SETTINGS, finish=True, stop_after=None, **options):
    """Scores `count` records the way a caller does; returns the output object."""
    with ResumableOutput(path, settings=settings, resume=resume, header=HEADER, **options) as output:
        if output.already_complete:
            return output
        for i in range(count):
            text, consumed = record(i)
            if i < output.already_written:
                output.skip(consumed)
            elif stop_after is not None and i >= stop_after:
                return output
            else:
                output.write(text, consumed)
        if finish:
            output.finish({"texts": count, "pppl": float("inf")})
        return output


def expected(count) -> bytes:
    return (HEADER + "".join(record(i)[0] for i in range(count))).encode()


def read_meta(path):
    return json.loads((path.parent / f"{path.name}.meta.json").read_text("utf-8"))
