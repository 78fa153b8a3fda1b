"""Kaldi's n-best archives in text form (nbest-to-linear): words, acoustic and language-model costs.

A folder, or its archives.N, with words_text, ac_cost or acwt, and lm_cost or lmwt.withlm, each a line
"utterance-n ..." per hypothesis, n from 1; costs are negative natural logs. ref_text has the references. A
further lmwt.NAME has costs of another model, nan where there is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mlmfast.errors import InputError
from mlmfast.io.lines import Source, open_file
from mlmfast.rescoring.formats.base import (
    COST,
    Format,
    Item,
    Place,
    ReadOptions,
    folder_of,
    in_natural_order,
    is_count,
    keyed,
    number,
    one_line,
    one_word,
    parsed_lines,
    score_or_nan,
    score_text,
)
from mlmfast.rescoring.formats.rows import Row, lists_of
from mlmfast.rescoring.lists import RescoredList

WORDS = "words_text"
ACOUSTIC = ("ac_cost", "acwt")
LANGUAGE = ("lm_cost", "lmwt.withlm")
ADDED = "lmwt."
REFERENCES = "ref_text"
T = TypeVar("T")


@dataclass(frozen=True)
class Cost:
    """A cost as a number and as it stood."""

    value: float
    raw: str


@dataclass(frozen=True)
class RawCosts:
    """The costs of a hypothesis as they stood."""

    acoustic: str
    lm: str
    added: dict[str, str]


NO_COST = Cost(math.nan, "nan")


def is_archive(folder: Path) -> bool:
    return (folder / WORDS).is_file()


def archives(folder: Path) -> list[Path]:
    """The folder itself if it is an archive, else those below it."""
    if is_archive(folder):
        return [folder]
    below = {child.name: child for child in folder.iterdir() if child.is_dir() and is_archive(child)}
    return [below[name] for name in in_natural_order(below)]


def read(source: Source, options: ReadOptions) -> Iterator[Item]:
    """One list per utterance. first_pass is -(acoustic cost + lm_scale * language-model cost); the costs of
    lmwt.NAME become the feature NAME.

    Memory is that of an archive's costs.
    """
    folder = folder_of(source, "Kaldi's archives")
    found = archives(folder)
    if not found:
        raise InputError(f"there is no {WORDS} in {folder} or a folder in it")
    for archive in found:
        yield from read_archive(archive, 1.0 if options.lm_scale is None else options.lm_scale)


def read_archive(archive: Path, lm_scale: float) -> Iterator[Item]:
    acoustic: dict[str, Cost] = {}
    language: dict[str, Cost] = {}
    references: dict[str, str] = {}
    added: dict[str, dict[str, Cost]] = {
        path.name.removeprefix(ADDED): {} for path in sorted(archive.glob(f"{ADDED}?*"))
    }
    added.pop("withlm", None)
    yield from load_costs(archive, ACOUSTIC, acoustic)
    yield from load_costs(archive, LANGUAGE, language)
    for name, costs in added.items():
        yield from load_costs(archive, (f"{ADDED}{name}",), costs, may_lack=True)
    yield from load_references(archive, references)

    def parse(line: str) -> Row:
        key, text = keyed(line)
        id, dash, rank = key.rpartition("-")
        if not dash or not is_count(rank) or int(rank) == 0:
            raise InputError(f"key {key!r}, where utterance-n with n from 1 was expected")
        for what, costs in (("acoustic", acoustic), ("language-model", language)):
            if key not in costs:
                return Row(id, number=int(rank), error=InputError(f"{key!r} has no {what} cost"))
        ac, lm = acoustic[key], language[key]
        more = {name: costs.get(key, NO_COST) for name, costs in added.items()}
        features = {
            **{name: COST.natural(cost.value) for name, cost in more.items()},
            "acoustic": COST.natural(ac.value),
            "lm": COST.natural(lm.value),
            "first_pass": COST.natural(ac.value + lm_scale * lm.value),
        }
        raw = RawCosts(ac.raw, lm.raw, {name: cost.raw for name, cost in more.items()})
        ref = references.get(id)
        return Row(id, text, features, raw, int(rank), () if ref is None else (ref,))

    with open_file(archive / WORDS) as stream:
        yield from lists_of(parsed_lines(stream, parse, file=WORDS))


def load_costs(
    archive: Path, names: tuple[str, ...], costs: dict[str, Cost], *, may_lack: bool = False
) -> Iterator[InputError]:
    """Fills `costs` from the first of the files that is there; yields what is wrong in it. A cost is a number
    or, if it `may_lack`, nan."""
    cost_of = score_or_nan if may_lack else number
    name = next((name for name in names if (archive / name).is_file()), None)
    if name is None:
        raise InputError(f"{archive} has neither {' nor '.join(names)}, which hold the costs")

    def parse(line: str) -> tuple[str, Cost]:
        key, raw = keyed(line)
        return key, Cost(cost_of(raw, f"the cost of {key!r}"), raw)

    with open_file(archive / name) as stream:
        yield from load_keyed(parsed_lines(stream, parse, file=name), costs)


def load_references(archive: Path, references: dict[str, str]) -> Iterator[InputError]:
    if (archive / REFERENCES).is_file():
        with open_file(archive / REFERENCES) as stream:
            yield from load_keyed(parsed_lines(stream, keyed, file=REFERENCES), references)


def load_keyed(
    lines: Iterator[tuple[Place, tuple[str, T] | InputError]], values: dict[str, T]
) -> Iterator[InputError]:
    for place, parsed in lines:
        if isinstance(parsed, InputError):
            yield parsed
        elif parsed[0] in values:
            yield place.error(f"{parsed[0]!r} comes twice; remove one")
        else:
            values[parsed[0]] = parsed[1]


def write_files(rescored: RescoredList) -> dict[str, str]:
    """The archive under its own keys and numbers, as Kaldi's other archives know them.

    New are text, the best hypothesis of each utterance, and a lmwt.NAME of costs per added score; those
    that were there stay.
    """
    nbest = rescored.nbest
    files: dict[str, str] = {WORDS: "", ACOUSTIC[0]: "", LANGUAGE[0]: ""}
    for place, hypothesis in enumerate(nbest.hypotheses):
        key = f"{one_word(nbest.id)}-{hypothesis.number}"
        features = hypothesis.features
        if isinstance(hypothesis.source, RawCosts):
            ac, lm, costs = hypothesis.source.acoustic, hypothesis.source.lm, dict(hypothesis.source.added)
        else:
            costs = {}
            first_pass = features.get("acoustic", features["first_pass"])
            ac, lm = score_text(COST.written(first_pass)), score_text(COST.written(features.get("lm", 0.0)))
        files[WORDS] += f"{key} {one_line(hypothesis.text)}\n"
        files[ACOUSTIC[0]] += f"{key} {ac}\n"
        files[LANGUAGE[0]] += f"{key} {lm}\n"
        for name, value in rescored.added(place).items():
            costs[name] = score_text(None if value is None else COST.written(value))
        for name, cost in costs.items():
            files[f"{ADDED}{name}"] = files.get(f"{ADDED}{name}", "") + f"{key} {cost}\n"
    best = nbest.hypotheses[rescored.order[0]].text if rescored.order else ""
    files["text"] = f"{one_word(nbest.id)} {one_line(best)}\n"
    if nbest.references:
        files[REFERENCES] = f"{nbest.id} {one_line(nbest.references[0])}\n"
    return files


KALDI = Format(
    "kaldi",
    read,
    scale=COST,
    options=frozenset({"lm_scale"}),
    write_files=write_files,
    reserved=frozenset({"withlm"}),
)
