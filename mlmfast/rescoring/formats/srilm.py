"""SRILM's n-best lists (nbest-format): a file, plain or .gz, per utterance, or a folder of them.

"acoustic lm words w1 w2 ..." per line, base 10; or after a line NBestList1.0 "(total) w1 w2 ...", or after
NBestList2.0 "(total) w1 ( st: start et: end g: lm a: acoustic ) ...", both in bytelogs (1024 / 10000.5 nats).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mlmfast.errors import InputError, OutputError
from mlmfast.io.lines import Source, open_file
from mlmfast.rescoring.formats.base import (
    LOG10,
    Format,
    Item,
    ReadOptions,
    ScoreScale,
    files_of,
    hypothesis_gaps,
    number,
    one_line,
    parsed_lines,
    score_text,
    stem,
)
from mlmfast.rescoring.lists import Hypothesis, NBestList, RescoredList

BYTELOG = ScoreScale(1024 / 10000.5)
DEFAULT_LM_SCALE = 8.0
SUFFIXES = (".nbest", ".score")
NOT_WORDS = frozenset({"<s>", "</s>", "-pau-"})
STATE_TAG = re.compile(r".*-[0-9]")
FIELDS_PER_WORD = 11
Parsed = tuple[str, dict[str, float]]


@dataclass(frozen=True)
class RawLine:
    """A line as it stood, without its end."""

    text: str


def read(source: Source, options: ReadOptions) -> Iterator[Item]:
    """One list per file, id its name without .gz, .nbest and .score.

    first_pass is the total in parentheses, or acoustic + lm_scale * lm, lm_scale 8 by default as in SRILM.
    <s>, </s> and -pau- are not part of the text.
    """
    for path in files_of(source, "SRILM lists"):
        yield from read_file(path, DEFAULT_LM_SCALE if options.lm_scale is None else options.lm_scale)


def read_file(path: Path, lm_scale: float) -> Iterator[Item]:
    parse: Callable[[list[str]], Parsed] = lambda words: parse_plain(words, lm_scale)  # noqa: E731
    header = ""
    hypotheses = []
    rank = 0

    def parse_line(line: str) -> tuple[str, Parsed | None]:
        nonlocal header, parse
        if line.startswith("NBestList"):
            header, parse = line + "\n", decipher_parser(line.strip())
            return line, None
        return line, parse(line.split())

    with open_file(path) as stream:
        for _, parsed in parsed_lines(stream, parse_line, file=path.name):
            if isinstance(parsed, InputError):
                yield parsed
                rank += 1
            elif parsed[1] is not None:
                rank += 1
                text, features = parsed[1]
                hypotheses.append(Hypothesis(rank, text, features, RawLine(parsed[0])))
    id = stem(path.name, SUFFIXES)
    yield NBestList(id, tuple(hypotheses), (), 1, RawLine(header), hypothesis_gaps(hypotheses))


def decipher_parser(magic: str) -> Callable[[list[str]], Parsed]:
    """The parser for the lines after the header. Raises InputError."""
    if magic == "NBestList1.0":
        return parse_decipher1
    if magic == "NBestList2.0":
        return parse_decipher2
    raise InputError(f"header {magic!r}, where NBestList1.0 or NBestList2.0 was expected")


def parse_plain(words: list[str], lm_scale: float) -> Parsed:
    """Raises InputError."""
    if len(words) < 3 or not words[2].isdecimal():
        raise InputError(f"{' '.join(words)!r:.60}, where 'acoustic lm number-of-words words' was expected")
    acoustic = LOG10.natural(number(words[0], "the acoustic score"))
    lm = LOG10.natural(number(words[1], "the language-model score"))
    return text_of(words[3:]), {"acoustic": acoustic, "lm": lm, "first_pass": acoustic + lm_scale * lm}


def parse_decipher1(words: list[str]) -> Parsed:
    """Raises InputError."""
    return text_of(words[1:]), {"first_pass": total_of(words)}


def parse_decipher2(words: list[str]) -> Parsed:
    """The tokens after a word that start within its time are its phones and states. Raises InputError."""
    total = total_of(words)
    if (len(words) - 1) % FIELDS_PER_WORD:
        raise InputError("a word is not followed by '( st: start et: end g: lm a: acoustic )'")
    kept = []
    acoustic = lm = 0.0
    last_end = -1.0
    for first in range(1, len(words), FIELDS_PER_WORD):
        word, _, _, start, _, end, _, g, _, a, _ = words[first : first + FIELDS_PER_WORD]
        if number(start, "a start time") > last_end and not STATE_TAG.fullmatch(word):
            kept.append(word)
            lm += BYTELOG.natural(number(g, f"the language-model score of {word!r}"))
            acoustic += BYTELOG.natural(number(a, f"the acoustic score of {word!r}"))
            last_end = number(end, "an end time")
    return text_of(kept), {"acoustic": acoustic, "lm": lm, "first_pass": total}


def total_of(words: list[str]) -> float:
    """The score in parentheses, in nats. Raises InputError."""
    if not words or words[0][0] != "(" or words[0][-1] != ")":
        raise InputError(f"{' '.join(words)!r:.60}, where '(score) words' was expected")
    return BYTELOG.natural(number(words[0][1:-1], "the score"))


def text_of(words: list[str]) -> str:
    return " ".join(word for word in words if word not in NOT_WORDS)


def write_files(rescored: RescoredList) -> dict[str, str]:
    """nbest/ID, the lines as they stood, best first, and NAME/ID, a base-10 score per line.

    These are an n-best folder and score folders as SRILM's rescore-reweight and nbest-optimize read them.
    """
    nbest = rescored.nbest
    if "/" in nbest.id or nbest.id in ("", ".", ".."):
        raise OutputError(f"id {nbest.id!r} cannot name a file, as SRILM's lists need; choose another format")
    lines = [nbest.source.text] if isinstance(nbest.source, RawLine) else []
    scores: dict[str, str] = {f"{name}/{nbest.id}": "" for name in rescored.features}
    for place in rescored.order:
        hypothesis = nbest.hypotheses[place]
        source = hypothesis.source
        lines.append((source.text if isinstance(source, RawLine) else plain_line(hypothesis)) + "\n")
        for name, value in rescored.added(place).items():
            written = None if value is None else LOG10.written(value)
            scores[f"{name}/{nbest.id}"] += f"{score_text(written)}\n"
    return {f"nbest/{nbest.id}": "".join(lines), **scores}


def plain_line(hypothesis: Hypothesis) -> str:
    features = hypothesis.features
    acoustic = LOG10.written(features.get("acoustic", features["first_pass"]))
    lm = LOG10.written(features.get("lm", 0.0))
    return f"{acoustic!r} {lm!r} {len(hypothesis.text.split())} {one_line(hypothesis.text)}"


SRILM = Format(
    "srilm",
    read,
    scale=LOG10,
    options=frozenset({"lm_scale"}),
    write_files=write_files,
    reserved=frozenset({"nbest"}),
)
