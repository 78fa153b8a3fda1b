"""Lists with ||| between the fields: Moses, Marian, Nematus, Joshua, cdec.

id ||| text [||| alignment] [||| WordScores= ...] [||| features] ||| total [||| alignments]

Features are "name= value ...", old Moses "name: value ...", Joshua and cdec "name=value", or bare numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mlmfast.errors import InputError
from mlmfast.io.lines import Source, open_input
from mlmfast.rescoring.formats.base import (
    Format,
    Item,
    Place,
    ReadOptions,
    one_line,
    parsed_lines,
    score_or_nan,
    score_text,
    undo_length,
)
from mlmfast.rescoring.formats.rows import Row, lists_of
from mlmfast.rescoring.lists import Hypothesis, RescoredList

BARS = re.compile(r"(?<!\S)\|\|\|(?!\S)")
ALIGNMENT = re.compile(r"\d+-\d+(?:\s+\d+-\d+)*")
PHRASE_ALIGNMENT = re.compile(r"\d+(?:-\d+)?=\d+(?:-\d+)?(?:\s+\d+(?:-\d+)?=\d+(?:-\d+)?)*")
SOFT_ALIGNMENT = re.compile(r"[-+.\deE]+(?:,[-+.\deE]+)+(?:\s+[-+.\deE]+(?:,[-+.\deE]+)+)*")
WORD_SCORES = re.compile(r"WordScores=.*")
FEATURE_NAME = re.compile(r"([^\s=]+?)(=|:)(\S*)")
LOOKS_NAMED = re.compile(r"[A-Za-z]\w*[=:]")


@dataclass(frozen=True)
class Line:
    """A line as it stood, and where and in which style a feature is added to it, or a field for it."""

    raw: str
    insert_at: int
    template: str
    has_features: bool = True

    def with_features(self, added: str) -> str:
        """The line with `added`, one or more features in the style of the template."""
        if added and not self.has_features:
            added = f"|||{added} "
        return self.raw[: self.insert_at] + added + self.raw[self.insert_at :]


@dataclass(frozen=True)
class Fields:
    """The parts of a line; `features` is the span of the feature field, None where there is none."""

    id: str
    text: str
    features: tuple[int, int] | None
    total: str
    total_bars: int


def read(source: Source, options: ReadOptions) -> Iterator[Item]:
    """One list per run of lines with one id."""
    with open_input(source) as stream:
        lines = parsed_lines(stream, lambda line: parse(line, options), keep_end=True)
        yield from lists_of(consistent(lines))


def consistent(lines: Iterator[tuple[Place, Row | InputError]]) -> Iterator[tuple[Place, Row | InputError]]:
    """The rows, but for those without a feature field after one that has it."""
    named = False
    for place, row in lines:
        if isinstance(row, Row) and isinstance(row.source, Line):
            if named and not row.source.has_features:
                reason = "the features cannot be read, or are missing; the lines before have them"
                yield place, Row(row.id, error=InputError(reason))
                continue
            named = named or row.source.has_features
        yield place, row


def parse(line: str, options: ReadOptions) -> Row:
    """The row of a line with its end. Raises InputError if not even the id can be read."""
    bars = [match.start() for match in BARS.finditer(line)]
    if not bars or not line[: bars[0]].strip():
        raise InputError(f"{line.strip()!r:.80}, where 'id ||| text ||| ... ||| total' was expected")
    try:
        fields = split(line, bars)
        return row_of(line, fields, options)
    except InputError as error:
        return Row(line[: bars[0]].strip(), error=error)


def split(line: str, bars: list[int]) -> Fields:
    """The fields, recognised from the right, because a text may hold bars too. Raises InputError."""
    starts = [0, *(bar + 3 for bar in bars)]
    ends = [*bars, len(line)]
    field = [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]
    last = len(field) - 1
    while last > 2 and is_trailing_field(field[last]):
        last -= 1
    if last < 2:
        raise InputError("no total; 'id ||| text ||| ... ||| total' was expected")
    score_or_nan(field[last], "the total")
    tail = last
    features = None
    if tail > 2 and is_feature_field(field[tail - 1]):
        tail -= 1
        features = (starts[tail], ends[tail])
    while tail > 2 and any(
        pattern.fullmatch(field[tail - 1]) for pattern in (WORD_SCORES, ALIGNMENT, SOFT_ALIGNMENT)
    ):
        tail -= 1
    text = line[starts[1] : ends[tail - 1]].strip()
    return Fields(field[0], text, features, field[last], bars[last - 1])


def is_trailing_field(field: str) -> bool:
    """Whether a field comes after the total: an alignment, which may be empty."""
    return not field or any(pattern.fullmatch(field) for pattern in (ALIGNMENT, PHRASE_ALIGNMENT))


def is_feature_field(field: str) -> bool:
    """Raises InputError for one that has names, but values that cannot be read."""
    if WORD_SCORES.fullmatch(field):
        return False
    try:
        feature_values(field)
    except InputError:
        if LOOKS_NAMED.match(field):
            raise
        return False
    return True


def feature_values(field: str) -> dict[str, float]:
    """The features of a field; several values of one name are name_0, name_1, ... Raises InputError."""
    values: dict[str, list[float]] = {}
    name = "feature"
    for word in field.split():
        match = FEATURE_NAME.fullmatch(word)
        if match:
            name = match[1]
            if name in values:
                raise InputError(f"feature {name!r} comes twice")
            values[name] = []
            word = match[3]
            if not word:
                continue
        values.setdefault(name, []).append(score_or_nan(word, f"a value of feature {name!r}"))
    for name, numbers in values.items():
        if not numbers:
            raise InputError(f"feature {name!r} has no value")
    features = {}
    for name, numbers in values.items():
        if len(numbers) == 1 and name != "feature":
            features[name] = numbers[0]
        else:
            features |= {f"{name}_{k}": value for k, value in enumerate(numbers)}
    return features


def row_of(line: str, fields: Fields, options: ReadOptions) -> Row:
    """The row, its total a sum.

    Nematus, which writes no features, gives costs: what it writes as 0.25 is -0.25. Marian may divide its
    total by a power of the length and writes the sum beside it, as F0.
    """
    total = score_or_nan(fields.total, "the total")
    if fields.features is None:
        total = -abs(total)
        source = Line(line, fields.total_bars, " {name}= {value}", has_features=False)
        features: dict[str, float] = {}
    else:
        start, end = fields.features
        block = line[start:end]
        features = feature_values(block)
        source = Line(line, start + len(block.rstrip()), template_of(block))
    sums = {"first_pass": total}
    if options.length_power is not None:
        tokens = len(fields.text.split())
        sums = {
            "first_pass": undo_length(total, tokens, options.length_power),
            "first_pass_normalized": total,
        }
    elif "F0" in features and "F1" not in features:
        sums = {"first_pass": features["F0"], "first_pass_normalized": total}
    return Row(fields.id, fields.text, {**features, **sums}, source)


def template_of(block: str) -> str:
    """How one more feature is written in a feature field like `block`."""
    words = block.split()
    match = FEATURE_NAME.fullmatch(words[0]) if words else None
    if match is None:
        return " {value}" if words else " {name}= {value}"
    return " {name}" + match[2] + ("" if match[3] else " ") + "{value}"


def write(rescored: RescoredList, index: int, columns: tuple[str, ...]) -> str:
    """The lines in the new order, each as it stood but for the added features; the totals stay as well.

    A hypothesis without an added score gets nan.
    """
    lines = []
    for place in rescored.order:
        hypothesis = rescored.nbest.hypotheses[place]
        source = hypothesis.source
        if not isinstance(source, Line):
            source = new_line(rescored.nbest.id, hypothesis)
        added = ""
        for name, value in rescored.added(place).items():
            added += source.template.format(name=name, value=score_text(value))
        lines.append(source.with_features(added))
    # Only the last line of a file may lack its end, and it may have moved up.
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines[:-1]) + "".join(lines[-1:])


def new_line(id: str, hypothesis: Hypothesis) -> Line:
    """The line of a hypothesis that comes from another format."""
    block = "".join(
        f" {name}= {value!r}" for name, value in hypothesis.features.items() if name != "first_pass"
    )
    start = f"{id} ||| {one_line(hypothesis.text)} |||{block}"
    return Line(f"{start} ||| {hypothesis.features['first_pass']!r}\n", len(start), " {name}= {value}")


def holds(hypothesis: Hypothesis, name: str) -> bool:
    """Whether the line has a feature of the name, with one value or several."""
    return name in hypothesis.features or f"{name}_0" in hypothesis.features


MOSES = Format(
    "moses",
    read,
    options=frozenset({"length_power"}),
    counted_ids=True,
    write=write,
    reserved=frozenset({"F0", "WordScores"}),
    holds=holds,
    replaces=False,
)
