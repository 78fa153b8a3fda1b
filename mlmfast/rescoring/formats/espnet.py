"""ESPnet2's decoding folders: N best_recog folders, each with a line "utterance value" per utterance.

logdir/output.J/Nbest_recog/{text,score,token,token_int}, J a job, N from 1; a score is a number or
"tensor(number)", a natural log, summed over the hypothesis. Named is any folder above or output.J itself.
After rescoring, score is the new total and a file first_pass has what score was before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from mlmfast.errors import InputError
from mlmfast.io.lines import Source, open_file
from mlmfast.rescoring.formats.base import (
    Format,
    Item,
    Place,
    ReadOptions,
    folder_of,
    hypothesis_gaps,
    in_natural_order,
    keyed,
    one_line,
    one_word,
    parsed_lines,
    score_or_nan,
    score_text,
    undo_length,
)
from mlmfast.rescoring.lists import Hypothesis, NBestList, RescoredList

RANK_FOLDER = re.compile(r"([1-9][0-9]*)best_recog")
TENSOR = re.compile(r"tensor\(([^,()]+)((?:,[^()]*)?)\)")
OUTPUT = "logdir/output.1"
KEPT = ("token", "token_int")
FIRST_PASS = "first_pass"


def job_folders(folder: Path) -> list[Path]:
    """The folders that hold a 1best_recog: `folder`, its children, or those of its logdir."""
    for candidates in ([folder], [*folder.glob("output.*")], [*folder.glob("logdir/output.*")]):
        found = {str(path): path for path in candidates if (path / "1best_recog" / "text").is_file()}
        if found:
            return [found[name] for name in in_natural_order(found)]
    return []


def read(source: Source, options: ReadOptions) -> Iterator[Item]:
    """One list per utterance of 1best_recog; a later rank that lacks an utterance ends its list."""
    folder = folder_of(source, "ESPnet's results")
    jobs = job_folders(folder)
    if not jobs:
        raise InputError(f"there is no 1best_recog/text in {folder}, its output.* or its logdir/output.*")
    for job in jobs:
        yield from read_job(job, folder, options)


def read_job(job: Path, folder: Path, options: ReadOptions) -> Iterator[Item]:
    """All files are read side by side: each has its utterances in the order of 1best_recog."""
    ranks = sorted(int(match[1]) for path in job.iterdir() if (match := RANK_FOLDER.fullmatch(path.name)))
    if ranks != list(range(1, len(ranks) + 1)):
        raise InputError(f"{job} has the folders of ranks {ranks}, where 1 to the last were expected")
    with ExitStack() as stack:
        first, *others = [RankFiles(job / f"{rank}best_recog", folder, stack) for rank in ranks]
        while first.next is not None:
            entry = first.take()
            hypotheses: list[Hypothesis] = []
            yield from entry.into(hypotheses, 1, options)
            for rank, files in enumerate(others, 2):
                if files.next is not None and files.next.key == entry.key:
                    yield from files.take().into(hypotheses, rank, options)
            yield NBestList(
                entry.key, tuple(hypotheses), (), entry.place.line, None, hypothesis_gaps(hypotheses)
            )
        for files in others:
            if files.next is not None:
                raise files.next.place.error(
                    f"utterance {files.next.key!r} is not in 1best_recog, or there in another place; "
                    "the folders must come from one run"
                )


@dataclass(frozen=True)
class RawValues:
    """What stood in each file."""

    values: dict[str, str]


@dataclass(frozen=True)
class Entry:
    """One utterance in one rank's files: the value in each file, or what is wrong there."""

    place: Place
    key: str
    values: dict[str, str]
    error: InputError | None

    def into(self, hypotheses: list[Hypothesis], rank: int, options: ReadOptions) -> Iterator[InputError]:
        """Appends the hypothesis, or yields why it is left out."""
        if self.error is not None:
            yield self.error
            return
        text = self.values["text"]
        features = {"first_pass": score_of(self.values.get(FIRST_PASS, self.values["score"]))}
        if FIRST_PASS in self.values:
            features["score"] = score_of(self.values["score"])
        if options.length_power is not None:
            tokens = len(self.values.get("token", text).split())
            features["first_pass_normalized"] = features["first_pass"]
            features["first_pass"] = undo_length(features["first_pass"], tokens, options.length_power)
        hypotheses.append(Hypothesis(rank, text, features, RawValues(self.values)))


class RankFiles:
    """The files of one Nbest_recog folder, read side by side; `next` is the utterance that comes next."""

    def __init__(self, rank_folder: Path, folder: Path, stack: ExitStack) -> None:
        self._rows = []
        self._names = [
            "text",
            "score",
            *(name for name in (*KEPT, FIRST_PASS) if (rank_folder / name).is_file()),
        ]
        for name in self._names:
            path = rank_folder / name
            stream = stack.enter_context(open_file(path))
            self._rows.append(parsed_lines(stream, keyed, file=str(path.relative_to(folder))))
        self.next = self._read()

    def take(self) -> Entry:
        """The next utterance, of which there is one."""
        entry = self.next
        assert entry is not None
        self.next = self._read()
        return entry

    def _read(self) -> Entry | None:
        rows = [next(rows, None) for rows in self._rows]
        if rows[0] is None:
            return None
        place, parsed = rows[0]
        if isinstance(parsed, InputError):
            raise parsed
        key, text = parsed
        values = {"text": text}
        error = None
        for name, row in zip(self._names[1:], rows[1:], strict=True):
            try:
                values[name] = value_of(row, key, place, name)
            except InputError as found:
                error = error or found
        return Entry(place, key, values, error)


def value_of(
    row: tuple[Place, tuple[str, str] | InputError] | None, key: str, place: Place, name: str
) -> str:
    """What a file says of the utterance. Raises InputError."""
    if row is None:
        raise place.error(f"utterance {key!r} is missing in the file {name} beside this one")
    other_place, parsed = row
    if isinstance(parsed, InputError):
        raise parsed
    if parsed[0] != key:
        raise other_place.error(f"utterance {parsed[0]!r}, where {key!r} was expected as in the file text")
    if name in ("score", FIRST_PASS):
        try:
            score_of(parsed[1])
        except InputError as error:
            raise other_place.error(error.reason) from error
    return parsed[1]


def score_of(raw: str) -> float:
    """Raises InputError."""
    match = TENSOR.fullmatch(raw)
    return score_or_nan(match[1].strip() if match else raw, "the score")


def write_files(rescored: RescoredList) -> dict[str, str]:
    """The folders renumbered, 1best_recog the best; score is the new total, first_pass what score was before,
    NAME each added score."""
    files = {}
    nbest = rescored.nbest
    key = one_word(nbest.id)
    for rank, place in enumerate(rescored.order, 1):
        hypothesis = nbest.hypotheses[place]
        source = hypothesis.source.values if isinstance(hypothesis.source, RawValues) else {}
        values = {
            "text": one_line(hypothesis.text),
            "score": written_score(rescored.scores[place], source.get("score")),
            FIRST_PASS: source.get(
                FIRST_PASS, source.get("score", score_text(hypothesis.features["first_pass"]))
            ),
            **{name: source[name] for name in KEPT if name in source},
            **{name: score_text(value) for name, value in rescored.added(place).items()},
        }
        for name, value in values.items():
            files[f"{OUTPUT}/{rank}best_recog/{name}"] = f"{key} {value}\n"
    if not rescored.order:
        files[f"{OUTPUT}/1best_recog/text"] = f"{key} \n"
        files[f"{OUTPUT}/1best_recog/score"] = f"{key} nan\n"
        files[f"{OUTPUT}/1best_recog/{FIRST_PASS}"] = f"{key} nan\n"
    return files


def written_score(score: float | None, raw: str | None) -> str:
    match = TENSOR.fullmatch(raw) if raw is not None else None
    if match is None:
        return score_text(score, raw)
    return f"tensor({score_text(score, match[1].strip())}{match[2]})"


ESPNET = Format(
    "espnet",
    read,
    options=frozenset({"length_power"}),
    write_files=write_files,
    reserved=frozenset(KEPT),
)
