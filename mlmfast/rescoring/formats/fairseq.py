"""fairseq's generate and interactive logs.

S-id source, T-id reference, and per hypothesis H-id score text, D-id score detokenized-text, P-id scores
per token, all tab-separated, in any order among other log lines. Scores are base 2; that of H and D is
divided by (tokens + 1) ** lenpen.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from mlmfast.errors import InputError
from mlmfast.io.lines import Source, open_input
from mlmfast.rescoring.formats.base import (
    Format,
    Item,
    Place,
    ReadOptions,
    ScoreScale,
    number,
    parsed_lines,
    undo_length,
)
from mlmfast.rescoring.lists import Hypothesis, NBestList

LINE = re.compile(r"([STHDP])-([0-9]{1,9})(?:\t(.*))?", re.DOTALL)
BASE2 = ScoreScale(math.log(2), length_normalized=True)
DEFAULT_LENPEN = 1.0


@dataclass(frozen=True)
class LogLine:
    """A line of a hypothesis: text of H or D, score of H or D or the sum of P."""

    score: float
    text: str = ""


@dataclass
class Sentence:
    """What the log says of one sentence, so far; a bad line is None in its place."""

    line: int
    references: list[str] = field(default_factory=list)
    lines: dict[str, list[LogLine | None]] = field(default_factory=lambda: {"H": [], "D": [], "P": []})


def read(source: Source, options: ReadOptions) -> Iterator[Item]:
    """One list per sentence, by number; the text is that of D where there is one, else of H.

    first_pass is the sum of P where there is one, else H with its length penalty (length_power, 1 by
    default) undone by the tokens of H. The log is read to its end first: lines come in any order.
    """
    sentences: dict[int, Sentence] = {}
    with open_input(source) as stream:
        for place, parsed in parsed_lines(stream, LINE.fullmatch):
            if isinstance(parsed, InputError):
                yield parsed
            elif parsed is not None:
                kind, id, content = parsed[1], int(parsed[2]), parsed[3] or ""
                sentence = sentences.setdefault(id, Sentence(place.line))
                yield from add_line(sentence, kind, content, place)
    power = DEFAULT_LENPEN if options.length_power is None else options.length_power
    for id in sorted(sentences):
        yield from list_of(str(id), sentences[id], power)


def add_line(sentence: Sentence, kind: str, content: str, place: Place) -> Iterator[InputError]:
    if kind == "T":
        sentence.references.append(content)
    elif kind != "S":
        entry = None
        try:
            entry = token_scores(content) if kind == "P" else scored_text(content)
        except InputError as error:
            yield place.error(error.reason)
        sentence.lines[kind].append(entry)


def scored_text(content: str) -> LogLine:
    """Raises InputError."""
    score, tab, text = content.partition("\t")
    if not tab:
        raise InputError(f"{content!r:.80}, where 'score<tab>text' was expected after the id")
    return LogLine(number(score, "the score"), text)


def token_scores(content: str) -> LogLine:
    """Raises InputError."""
    return LogLine(math.fsum(number(word, "a token's score") for word in content.split()))


def list_of(id: str, sentence: Sentence, power: float) -> Iterator[Item]:
    hypothesis_lines, detokenized, positional = (sentence.lines[kind] for kind in "HDP")
    for kind, others in (("D", detokenized), ("P", positional)):
        if others and len(others) != len(hypothesis_lines):
            yield InputError(
                f"sentence {id} has {len(hypothesis_lines)} H lines, but {len(others)} {kind} lines; "
                "there must be one for each, or none",
                line=sentence.line,
            )
            hypothesis_lines = []
            break
    hypotheses = []
    for rank, h in enumerate(hypothesis_lines, 1):
        d = detokenized[rank - 1] if detokenized else h
        if h is None or d is None or (positional and positional[rank - 1] is None):
            continue
        p = positional[rank - 1] if positional else None
        total = undo_length(h.score, len(h.text.split()), power) if p is None else p.score
        features = {
            "first_pass": BASE2.natural(total),
            "first_pass_normalized": BASE2.natural(h.score),
        }
        hypotheses.append(Hypothesis(rank, d.text, features))
    yield NBestList(id, tuple(hypotheses), tuple(sentence.references), sentence.line)


FAIRSEQ = Format(
    "fairseq",
    read,
    scale=BASE2,
    options=frozenset({"length_power"}),
    counted_ids=True,
    written_as="jsonl",
)
