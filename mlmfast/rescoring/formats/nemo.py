"""NeMo's beams: a TSV line "text<tab>score" per hypothesis, utterance after utterance as in the manifest.

Every utterance has the same number of lines (beam width); nothing in the file says where one ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mlmfast.errors import InputError, SettingsError
from mlmfast.io.lines import Source, is_stream, open_file, physical_lines
from mlmfast.rescoring.formats.base import (
    Format,
    Item,
    ReadOptions,
    one_line,
    parsed_lines,
    score_or_nan,
    score_text,
)
from mlmfast.rescoring.lists import Hypothesis, NBestList, RescoredList


@dataclass(frozen=True)
class RawScore:
    """A score as it stood."""

    text: str


@dataclass(frozen=True)
class Utterance:
    """A line of the manifest."""

    id: str
    references: tuple[str, ...]


def read(source: Source, options: ReadOptions) -> Iterator[Item]:
    """One list per line of the manifest, id its audio_filepath, with "#offset" where it has one.

    Raises SettingsError without a manifest, InputError if the lines cannot be shared out evenly.
    """
    if options.manifest is None:
        raise SettingsError("NeMo beams can only be read with their manifest; name it with --manifest")
    if not isinstance(source, (str, Path)) or is_stream(source):
        raise SettingsError("NeMo beams are read twice, so not from a stream or pipe; name the file")
    with open_file(options.manifest) as stream:
        utterances = list(parsed_lines(stream, parse_manifest, file=options.manifest.name))
    with open_file(Path(source)) as stream:
        num_lines = sum(1 for _ in physical_lines(stream))
    beam = beam_width(num_lines, len(utterances))
    with open_file(Path(source)) as stream:
        lines = parsed_lines(stream, parse)
        for index, (_, utterance) in enumerate(utterances):
            hypotheses = []
            for rank in range(1, beam + 1):
                _, hypothesis = next(lines)
                if isinstance(hypothesis, InputError):
                    yield hypothesis
                else:
                    hypotheses.append(Hypothesis(rank, *hypothesis))
            if isinstance(utterance, InputError):
                yield utterance
            else:
                line = index * beam + 1 if beam else None
                yield NBestList(utterance.id, tuple(hypotheses), utterance.references, line)


def beam_width(num_lines: int, num_utterances: int) -> int:
    """Lines per utterance. Raises InputError unless that is a whole number."""
    if num_utterances and num_lines % num_utterances == 0:
        return num_lines // num_utterances
    raise InputError(
        f"{num_lines} lines for the {num_utterances} utterances of the manifest, where utterances x beam "
        "width was expected; check that both come from one run and are whole"
    )


def parse_manifest(line: str) -> Utterance:
    """Raises InputError."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}; write one object per line") from error
    path = value.get("audio_filepath") if isinstance(value, dict) else None
    if not isinstance(path, str):
        raise InputError("no string 'audio_filepath'; a manifest line is an object that has one")
    offset = f"#{value['offset']}" if "offset" in value else ""
    text = value.get("text")
    return Utterance(path + offset, (text,) if isinstance(text, str) else ())


def parse(line: str) -> tuple[str, dict[str, float], RawScore]:
    """Text, features and the score as it stood. Raises InputError."""
    text, tab, score = line.rpartition("\t")
    if not tab:
        raise InputError(f"{line!r:.80}, where 'text<tab>score' was expected")
    return text, {"first_pass": score_or_nan(score.strip(), "the score")}, RawScore(score.strip())


def write(rescored: RescoredList, index: int, columns: tuple[str, ...]) -> str:
    """The lines in the new order with the new totals."""
    lines = []
    for place in rescored.order:
        hypothesis = rescored.nbest.hypotheses[place]
        raw = hypothesis.source.text if isinstance(hypothesis.source, RawScore) else None
        lines.append(f"{one_line(hypothesis.text)}\t{score_text(rescored.scores[place], raw)}\n")
    return "".join(lines)


NEMO = Format("nemo", read, options=frozenset({"manifest"}), write=write)
