"""A text's result as the lines of an output file, jsonl or tsv."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from mlmfast.io.json_text import finite, to_json
from mlmfast.results import PLL_MASKINGS, TextScore
from mlmfast.types import JsonRecord, Token, Word

Per = Literal["text", "word", "token"]
OutputFormat = Literal["jsonl", "tsv"]

TEXT_COLUMNS = ("score", "num_tokens", "num_unknown", "pppl")
WORD_COLUMNS = ("word", "log_prob", "start", "end")
TOKEN_COLUMNS = ("token", "log_prob", "start", "end", "rank", "entropy", "top")
COLUMNS: dict[str, tuple[str, ...]] = {"text": TEXT_COLUMNS, "word": WORD_COLUMNS, "token": TOKEN_COLUMNS}
REMARK_COLUMNS = ("flags", "error", "id")

CELL_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def header_line(*, per: Per, format: OutputFormat) -> str:
    """What an output starts with: the names of the tsv columns, nothing for jsonl."""
    if format == "jsonl":
        return ""
    text = ("text",) if per == "text" else ()
    return tsv_row(("line", *COLUMNS[per], *REMARK_COLUMNS, *text))


def record_lines(line: int, id: str | None, result: TextScore, *, per: Per, format: OutputFormat) -> str:
    """The result of the text at 1-based `line` of the input, line ends included.

    jsonl: exactly one line. tsv: one row for the text, or one for each of its words or tokens, or, if it
    has none, one with those columns empty. Log-probabilities are in nats; those of tokens, float32, are
    written in the fewest digits that give the float32 back, sums in full. What is missing or not finite
    is null in jsonl and empty in tsv, where tab, newline, carriage return and backslash are written as
    \\t, \\n, \\r and \\\\.
    """
    if format == "jsonl":
        return to_json(json_record(id, result, per=per)) + "\n"
    remarks = (",".join(result.flags), result.error, id)
    if per == "text":
        cells = (result.score, *token_counts(result), result.pppl)
        return tsv_row((line, *cells, *remarks, result.text))
    units = word_records(result.words) if per == "word" else token_records(result.tokens)
    columns = COLUMNS[per]
    return "".join(
        tsv_row((line, *(unit.get(column) for column in columns), *remarks)) for unit in units or [{}]
    )


def json_record(id: str | None, result: TextScore, *, per: Per) -> JsonRecord:
    """The result as a JSON object; floats in it may still be NaN or infinite."""
    num_tokens, num_unknown = token_counts(result)
    record: JsonRecord = {
        "text": result.text,
        "score": result.score,
        "num_tokens": num_tokens,
        "num_unknown": num_unknown,
        "pppl": result.pppl,
    }
    if result.masking in PLL_MASKINGS:
        record["pll"] = result.pll
    record["masking"] = result.masking
    if result.student_head is not None:
        record["student_head"] = result.student_head
    if id is not None:
        record["id"] = id
    if result.flags:
        record["flags"] = list(result.flags)
    if result.error is not None:
        record["error"] = result.error
    if per == "token":
        record["tokens"] = token_records(result.tokens)
    elif per == "word":
        record["words"] = word_records(result.words)
    return record


def token_counts(result: TextScore) -> tuple[int | None, int | None]:
    """Scored and unknown tokens; of a text that failed they are not known, which is not 0."""
    if result.error is not None and result.score is None:
        return None, None
    return result.num_tokens, result.num_unknown


def token_records(tokens: Iterable[Token]) -> list[JsonRecord]:
    records = []
    for token in tokens:
        record: JsonRecord = {
            "token": token.token,
            "log_prob": shortest(token.log_prob),
            "start": token.start,
            "end": token.end,
        }
        if token.rank is not None:
            record["rank"] = token.rank
        if token.entropy is not None:
            record["entropy"] = shortest(token.entropy)
        if token.top is not None:
            record["top"] = [{"token": name, "log_prob": shortest(value)} for name, value in token.top]
        records.append(record)
    return records


def word_records(words: Iterable[Word]) -> list[JsonRecord]:
    return [
        {"word": word.word, "log_prob": word.log_prob, "start": word.start, "end": word.end} for word in words
    ]


def shortest(value: float) -> float:
    """The float with the fewest decimal digits among those that round to the float32 `value`.

    >>> shortest(float(np.float32(-0.1)))
    -0.1
    """
    return float(str(np.float32(value)))


def tsv_row(cells: Iterable[Any]) -> str:
    return "\t".join(map(tsv_cell, cells)) + "\n"


def tsv_cell(value: Any) -> str:
    """A string is escaped, a number written in full, a list as JSON; None and NaN are empty."""
    if isinstance(value, list):
        value = to_json(value)
    if isinstance(value, str):
        return value.translate(CELL_ESCAPES)
    value = finite(value)
    return "" if value is None else str(value)
