"""Our own formats: a JSON object per list, or a table with a row per hypothesis.

JSON lines: {"id": ..., "references": [...], "hypotheses": [{"text": ..., "first_pass": ..., NAME: ...}]}.
Tables (CSV or TSV): a header row with id, text and first_pass or score; other columns are features if they
hold numbers; "number" orders the hypotheses, "reference" is the reference. All scores are natural logs; null
or an empty cell is no score.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from mlmfast.errors import InputError, OutputError
from mlmfast.io.json_text import to_json
from mlmfast.io.lines import Source, open_input
from mlmfast.io.readers import has_lone_surrogate
from mlmfast.io.tables import MAX_FIELD_SIZE, restore, table_lines
from mlmfast.rescoring.formats.base import (
    NUMBER,
    Format,
    Item,
    Place,
    ReadOptions,
    is_count,
    parsed_lines,
    score_or_nan,
)
from mlmfast.rescoring.formats.rows import Row, lists_of
from mlmfast.rescoring.formats.scores import TOTALS, json_scores, with_all_features, with_first_pass
from mlmfast.rescoring.lists import Hypothesis, NBestList, RescoredList

OWN_COLUMNS = ("id", "number", "text", "reference")


def read_jsonl(source: Source, options: ReadOptions) -> Iterator[Item]:
    """One list per line, hypotheses numbered as they come."""
    with open_input(source) as stream:
        for place, value in parsed_lines(stream, parse_object):
            if isinstance(value, InputError):
                yield value
            else:
                yield from json_list(value, place)


def parse_object(line: str) -> dict[str, Any]:
    """An object with an id and a list of hypotheses. Raises InputError."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}; write one list per line") from error
    if not isinstance(value, dict) or type(value.get("id")) not in (str, int):
        raise InputError("an object with 'id', a string, was expected")
    if has_lone_surrogate(str(value["id"])):
        raise InputError("the id has a lone surrogate (half a character); correct the escape")
    if not isinstance(value.get("hypotheses"), list):
        raise InputError(f"list {value['id']!r} has no 'hypotheses', an array of objects")
    return value


def json_list(value: dict[str, Any], place: Place) -> Iterator[Item]:
    hypotheses = []
    for rank, content in enumerate(value["hypotheses"], 1):
        try:
            hypotheses.append(json_hypothesis(rank, content))
        except InputError as error:
            yield place.error(f"hypothesis {rank}: {error.reason}")
    given = value.get("references")
    references = tuple(text for text in given if isinstance(text, str)) if isinstance(given, list) else ()
    yield NBestList(str(value["id"]), with_all_features(hypotheses), references, place.line)


def json_hypothesis(rank: int, content: Any) -> Hypothesis:
    """Raises InputError."""
    if not isinstance(content, dict) or not isinstance(content.get("text"), str):
        raise InputError("an object with 'text', a string, was expected")
    if has_lone_surrogate(content["text"]):
        raise InputError("the text has a lone surrogate (half a character); correct the escape")
    return Hypothesis(rank, content["text"], with_first_pass(json_scores(content)))


def write_jsonl(rescored: RescoredList, index: int, columns: tuple[str, ...]) -> str:
    """The list in its new order: `score` is the new total, beside it all features, old and added."""
    hypotheses = []
    for place in rescored.order:
        hypothesis = rescored.nbest.hypotheses[place]
        scores = {**hypothesis.features, **rescored.added(place), "score": rescored.scores[place]}
        hypotheses.append({"text": hypothesis.text, **scores})
    nbest = rescored.nbest
    return to_json({"id": nbest.id, "references": list(nbest.references), "hypotheses": hypotheses}) + "\n"


def read_table(source: Source, options: ReadOptions) -> Iterator[Item]:
    """One list per run of rows with one id; a .tsv has tabs, unless its header has none."""
    is_tsv = isinstance(source, (str, Path)) and str(source).removesuffix(".gz").endswith(".tsv")
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_SIZE))
    with open_input(source) as stream:
        lines = table_lines(stream)
        header = next(lines, "")
        delimiter = "\t" if is_tsv and "\t" in header else ","
        rows = csv.reader(chain([header] if header else [], lines), delimiter=delimiter, strict=True)
        yield from lists_of(table_rows(rows))


def table_rows(rows: Any) -> Iterator[tuple[Place, Row | InputError]]:
    """The rows below the header. Raises InputError for a bad header."""
    header: list[str] | None = None
    while True:
        place = Place(rows.line_num + 1)
        try:
            cells = restore(next(rows), place.line)
        except StopIteration:
            break
        except csv.Error as error:
            yield place, place.error(f"not valid CSV: {error}; check the quotes of the row that starts here")
            continue
        except InputError as error:
            yield place, error
            continue
        if header is None:
            header = checked_header(cells)
        elif len(cells) != len(header):
            yield place, place.error(f"{len(cells)} columns, but the header has {len(header)}")
        else:
            yield place, table_row(dict(zip(header, cells, strict=True)))
    if header is None:
        raise InputError("the table is empty; it needs a header row with id, text and first_pass", line=1)


def checked_header(cells: list[str]) -> list[str]:
    """Raises InputError."""
    missing = [name for name in ("id", "text") if name not in cells]
    missing += [] if set(TOTALS) & set(cells) else ["first_pass"]
    if missing or len(set(cells)) < len(cells):
        raise InputError(
            f"the header has {', '.join(map(repr, cells))}; needed are id, text and first_pass (or score), "
            "each column once",
            line=1,
        )
    return cells


def table_row(cells: dict[str, str]) -> Row:
    id = cells["id"]
    try:
        scores = {
            name: score_or_nan(cell or "nan", f"column {name!r}")
            for name, cell in cells.items()
            if name == "first_pass" or (name not in OWN_COLUMNS and (not cell or NUMBER.fullmatch(cell)))
        }
        rank = cells.get("number")
        if rank is not None and not is_count(rank):
            raise InputError(f"column 'number' is {rank!r}, where a whole number was expected")
        references = (cells["reference"],) if cells.get("reference") else ()
        return Row(
            id, cells["text"], with_first_pass(scores), None, None if rank is None else int(rank), references
        )
    except InputError as error:
        return Row(id, error=error)


def write_csv(rescored: RescoredList, index: int, columns: tuple[str, ...]) -> str:
    """A row per hypothesis in the new order, after a header row before the first list; no score is empty.

    Raises OutputError if a list has features that the first one lacks.
    """
    rows = []
    names = [name for name in columns if name != "score"]
    if index == 0:
        rows.append(csv_row(["id", "text", "reference", "score", *names]))
    nbest = rescored.nbest
    reference = nbest.references[0] if nbest.references else ""
    for place in rescored.order:
        hypothesis = nbest.hypotheses[place]
        all_scores = {**hypothesis.features, **rescored.added(place), "score": rescored.scores[place]}
        scores = {
            name: value for name, value in all_scores.items() if value is not None and not math.isnan(value)
        }
        unknown = set(scores) - set(columns) - {"score"}
        if unknown:
            raise OutputError(
                f"list {nbest.id!r} has the features {sorted(unknown)}, which the first one lacks"
            )
        cells = [repr(scores[name]) if name in scores else "" for name in ("score", *names)]
        rows.append(csv_row([nbest.id, hypothesis.text, reference, *cells]))
    return "".join(rows)


def csv_row(cells: list[str]) -> str:
    # With a bare newline as its line end, csv would leave a carriage return unquoted.
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue().removesuffix("\r\n") + "\n"


JSONL = Format("jsonl", read_jsonl, write=write_jsonl)
CSV = Format("csv", read_table, write=write_csv, reserved=frozenset(OWN_COLUMNS))
