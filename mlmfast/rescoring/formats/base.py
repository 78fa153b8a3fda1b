"""What the formats share: how scores are written, where a problem is, what a format can do."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard, TypeVar

from mlmfast.errors import InputError, OutputError, SettingsError
from mlmfast.io.lines import Source, decode, physical_lines, without_line_end
from mlmfast.rescoring.lists import Hypothesis, NBestList, RescoredList

T = TypeVar("T")
Item = NBestList | InputError
"""What a reader yields: a list, or what is wrong with a part that it left out."""

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)


@dataclass(frozen=True)
class ScoreScale:
    """How a format writes its scores.

    nats: one unit in nats, negative where a smaller number is better (a cost). length_normalized: whether
    the decoder's total is divided by a power of the hypothesis's length.
    """

    nats: float = 1.0
    length_normalized: bool = False

    def natural(self, value: float) -> float:
        """A number of the file as a natural log, larger is better."""
        return value * self.nats

    def written(self, value: float) -> float:
        """A natural log as a number of the file."""
        return value / self.nats


NATURAL_LOG = ScoreScale()
LOG10 = ScoreScale(math.log(10))
COST = ScoreScale(-1.0)


@dataclass(frozen=True)
class ReadOptions:
    """What a file alone does not say; None where it was not given.

    nbest: hypotheses to take from a lattice. lm_scale: the weight of the language-model score in the
    decoder's total. length_power: the total was divided by (tokens + 1) ** length_power. manifest: the
    NeMo manifest.
    """

    nbest: int | None = None
    lm_scale: float | None = None
    length_power: float | None = None
    manifest: Path | None = None


@dataclass(frozen=True)
class Format:
    """An n-best format.

    read: the lists of a source, with an InputError in the place of each part that is left out; what breaks
    the whole input is raised. scale: of its scores. options: those of ReadOptions it knows.
    counted_ids: ids are sentence numbers from 0, so that a gap shows and line i of a reference file is
    that of id i - 1. Written either to one file, `write` giving the lines of list `index` (all lists have
    the first one's feature names, `columns`) and `end` what comes after the last of `count` lists, or to a
    folder, `write_files` giving what each file gains. A format without both is written as `written_as`.
    reserved: names of its own, which no added score can have. holds: whether a hypothesis has something
    under a name. replaces: whether an added score can take the place of one that is there.
    """

    name: str
    read: Callable[[Source, ReadOptions], Iterator[Item]]
    scale: ScoreScale = NATURAL_LOG
    options: frozenset[str] = frozenset()
    counted_ids: bool = False
    write: Callable[[RescoredList, int, tuple[str, ...]], str] | None = None
    end: Callable[[int], str] = lambda count: ""
    write_files: Callable[[RescoredList], dict[str, str]] | None = None
    written_as: str | None = None
    reserved: frozenset[str] = frozenset()
    holds: Callable[[Hypothesis, str], bool] = lambda hypothesis, name: name in hypothesis.features
    replaces: bool = True


@dataclass(frozen=True)
class Place:
    """Where something stands: a line, in one of several files if `file` is given."""

    line: int
    file: str | None = None

    def error(self, reason: str) -> InputError:
        if self.file is None:
            return InputError(reason, line=self.line)
        return InputError(reason, where=f"{self.file}, line {self.line}")


def parsed_lines(
    stream: BinaryIO, parse: Callable[[str], T], *, file: str | None = None, keep_end: bool = False
) -> Iterator[tuple[Place, T | InputError]]:
    """What `parse` makes of each line, without its end unless `keep_end`; InputErrors gain their place."""
    for number, raw in enumerate(physical_lines(stream), 1):
        place = Place(number, file)
        value: T | InputError
        try:
            value = parse(decode(raw if keep_end else without_line_end(raw), number))
        except InputError as error:
            value = place.error(error.reason)
        yield place, value


def number(text: str, what: str) -> float:
    """`text` as a finite number. Raises InputError."""
    if NUMBER.fullmatch(text) and math.isfinite(value := float(text)):
        return value
    raise InputError(f"{what} is {text!r}, where a finite number was expected; correct or remove it")


def score_or_nan(text: str, what: str) -> float:
    """`text` as a finite number, or NaN where it says nan: there is no score. Raises InputError."""
    return math.nan if text == "nan" else number(text, what)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a JSON value is a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the floats
        return False


def is_count(text: str) -> bool:
    """Whether `text` is a whole number of a size that counts something."""
    return text.isascii() and text.isdecimal() and len(text) < 10


def score_text(value: float | None, source: str | None = None) -> str:
    """A score for a text format: as it stood in the source if it did not change, nan if there is none."""
    if value is None or math.isnan(value):
        return "nan"
    if source is not None and NUMBER.fullmatch(source) and float(source) == value:
        return source
    return repr(value)


def keyed(line: str) -> tuple[str, str]:
    """The first word of a line and the rest, which may be empty. Raises InputError."""
    parts = line.split(maxsplit=1)
    if not parts:
        raise InputError("a blank line, where a key and a value were expected; remove it")
    return parts[0], parts[1].strip() if len(parts) > 1 else ""


def one_line(text: str) -> str:
    """The text with its white space made single spaces, if there are line ends or tabs in it."""
    return " ".join(text.split()) if any(character in text for character in "\n\r\t") else text


def one_word(id: str) -> str:
    """An id as the key of a line. Raises OutputError."""
    if len(id.split()) != 1 or id != id.strip():
        raise OutputError(f"id {id!r} is not one word, as the keys of this format are; choose another format")
    return id


def gap_flags(name: str, count: int) -> tuple[str, ...]:
    return (f"{name}:{count}",) if count else ()


def hypothesis_gaps(hypotheses: Iterable[Hypothesis]) -> tuple[str, ...]:
    """The flag for numbers that are missing among 1 to the largest."""
    numbers = [hypothesis.number for hypothesis in hypotheses]
    return gap_flags("hypothesis_gap", max(numbers, default=0) - len(numbers))


def undo_length(total: float, num_tokens: int, power: float) -> float:
    """The sum behind a total that was divided by (num_tokens + 1) ** power, end of sentence included."""
    return float(total * (num_tokens + 1) ** power)


def in_natural_order(names: Iterable[str]) -> list[str]:
    """`names` with the numbers in them compared as numbers: output.2 before output.10."""
    return sorted(
        names,
        key=lambda name: [
            (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)
        ],
    )


def stem(name: str, suffixes: Iterable[str]) -> str:
    """A file name without .gz and one of the suffixes."""
    name = name.removesuffix(".gz")
    for suffix in suffixes:
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix)
    return name


def files_of(source: Source, what: str) -> list[Path]:
    """The files of a folder, or the one file. Raises SettingsError for a stream: it has no name."""
    if not isinstance(source, (str, Path)) or source == "-":
        raise SettingsError(f"{what} are named by their files, so not read from a stream; name the file")
    path = Path(source)
    if not path.is_dir():
        return [path]
    found = {child.name: child for child in path.iterdir() if child.is_file() and child.name[0] != "."}
    return [found[name] for name in in_natural_order(found)]


def folder_of(source: Source, what: str) -> Path:
    """`source` as an existing folder. Raises InputError."""
    if isinstance(source, (str, Path)) and source != "-" and Path(source).is_dir():
        return Path(source)
    raise InputError(f"{what} are read from a folder, but {source} is not one; name the folder")
