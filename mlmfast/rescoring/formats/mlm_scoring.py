"""mlm-scoring's lists: one JSON object (Shin et al. 2019), or .nobpe beams.

JSON: {utterance: {"ref": text, "hyp_1": {"score": log-probability, "text": text}, ...}, ...}; after
rescoring, "score" is the new total, null where there is none, and "first_pass" what "score" was before.
.nobpe: a block of lines "text normalised-total total" per sentence, a blank line after each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from mlmfast.errors import InputError
from mlmfast.io.json_text import to_json
from mlmfast.io.lines import Source, open_input
from mlmfast.io.readers import has_lone_surrogate
from mlmfast.rescoring.formats.base import (
    Format,
    Item,
    ReadOptions,
    ScoreScale,
    hypothesis_gaps,
    is_count,
    is_number,
    number,
    parsed_lines,
)
from mlmfast.rescoring.formats.json_stream import JsonObject, object_items
from mlmfast.rescoring.formats.scores import TOTALS, json_scores, with_all_features, with_first_pass
from mlmfast.rescoring.lists import Hypothesis, NBestList, RescoredList

HYPOTHESIS = re.compile(r"hyp_([0-9]+)")
GLUED = re.compile(r"(.*[^-+.\d])([-+]\d+\.?\d*)")


def read_json(source: Source, options: ReadOptions) -> Iterator[Item]:
    """One list per utterance, hypotheses in the order of their numbers.

    first_pass is `first_pass`, or `score` where that is not there; other numbers of a hypothesis become
    features under their own names.
    """
    with open_input(source) as stream:
        for line, id, value in object_items(stream):
            yield from utterance(id, value, line)


def utterance(id: str, value: Any, line: int) -> Iterator[Item]:
    """The list of one utterance, after an error for each hypothesis that is left out."""
    if has_lone_surrogate(id):
        yield InputError("the id has a lone surrogate (half a character); correct the escape", line=line)
        return
    if not isinstance(value, JsonObject):
        yield InputError(
            f"utterance {id!r} is {value!r:.60}, where an object with hyp_1, hyp_2, ... was expected",
            line=line,
        )
        yield NBestList(id, (), line=line)
        return
    repeated = [name for name in value.repeated if HYPOTHESIS.fullmatch(name)]
    hypotheses: dict[int, Hypothesis] = {}
    for name, content in value.items():
        match = HYPOTHESIS.fullmatch(name)
        if match is None:
            continue
        try:
            rank = int(match[1]) if is_count(match[1]) else 0
            if rank == 0 or rank in hypotheses or name in repeated:
                raise InputError("numbers count from 1, each once; renumber")
            hypotheses[rank] = hypothesis_of(rank, content)
        except InputError as error:
            yield InputError(f"utterance {id!r}, {name}: {error.reason}", line=line)
    rest = JsonObject([item for item in value.items() if HYPOTHESIS.fullmatch(item[0]) is None])
    ref = rest.get("ref")
    references = tuple(text for text in (ref if isinstance(ref, list) else [ref]) if isinstance(text, str))
    ordered = with_all_features([hypotheses[rank] for rank in sorted(hypotheses)])
    yield NBestList(id, ordered, references, line, rest, hypothesis_gaps(ordered))


def hypothesis_of(rank: int, content: Any) -> Hypothesis:
    """Raises InputError."""
    if not isinstance(content, dict):
        raise InputError(f"{content!r:.60}, where an object with score and text was expected")
    text = content.get("text")
    if not isinstance(text, str):
        raise InputError(f"field 'text' is {text!r}, where a string was expected")
    if has_lone_surrogate(text):
        raise InputError("field 'text' has a lone surrogate (half a character); correct the escape")
    for name in TOTALS:
        if name in content and content[name] is not None and not is_number(content[name]):
            raise InputError(f"field {name!r} is {content[name]!r}, where a finite number was expected")
    return Hypothesis(rank, text, with_first_pass(json_scores(content)), content)


def write_json(rescored: RescoredList, index: int, columns: tuple[str, ...]) -> str:
    """The utterance renumbered, hyp_1 the best; `score` is the new total, what else there was is kept.

    `first_pass` is written where the new total is another, so that rescoring again starts from it.
    """
    nbest = rescored.nbest
    references = nbest.references
    utterance: dict[str, Any]
    if isinstance(nbest.source, JsonObject):
        utterance = dict(nbest.source)
    else:
        utterance = {"ref": references[0] if len(references) == 1 else list(references)} if references else {}
    for rank, place in enumerate(rescored.order, 1):
        hypothesis = nbest.hypotheses[place]
        first_pass = hypothesis.features["first_pass"]
        score = rescored.scores[place]
        changed = score != first_pass and not (score is None and math.isnan(first_pass))
        utterance[f"hyp_{rank}"] = {
            **kept_of(hypothesis),
            **({"first_pass": first_pass} if changed else {}),
            "score": score,
            "text": hypothesis.text,
            **rescored.added(place),
        }
    body = to_json(utterance, indented=True).replace("\n", "\n  ")
    return f"{',' if index else '{'}\n  {to_json(nbest.id)}: {body}"


def kept_of(hypothesis: Hypothesis) -> JsonObject | dict[str, Any]:
    """What stood in the file under the hypothesis."""
    return hypothesis.source if isinstance(hypothesis.source, JsonObject) else {}


def end_json(count: int) -> str:
    return "\n}\n" if count else "{}\n"


def read_nobpe(source: Source, options: ReadOptions) -> Iterator[Item]:
    """One list per block, ids from 0. The last block needs no blank line after it."""
    hypotheses: list[Hypothesis] = []
    first: int | None = None
    rank = count = 0
    with open_input(source) as stream:
        for place, parsed in parsed_lines(stream, parse_nobpe):
            if parsed is None:
                yield NBestList(str(count), tuple(hypotheses), line=first or place.line)
                hypotheses, first, rank = [], None, 0
                count += 1
                continue
            first = first or place.line
            rank += 1
            if isinstance(parsed, InputError):
                yield parsed
            else:
                text, features = parsed
                hypotheses.append(Hypothesis(rank, text, features))
    if first is not None:
        yield NBestList(str(count), tuple(hypotheses), line=first)


def parse_nobpe(line: str) -> tuple[str, dict[str, float]] | None:
    """Text and features of a line, None for a blank one. Raises InputError."""
    words = line.split()
    if not words:
        return None
    if len(words) == 1:
        raise InputError(f"{line!r} has one field, where a text and two scores were expected")
    glued = GLUED.fullmatch(words[-2])
    if glued:
        raise InputError(f"the score {glued[2]} is glued to the word {glued[1]!r}; put a space between them")
    normalized, total = number(words[-2], "the normalised score"), number(words[-1], "the score")
    return " ".join(words[:-2]), {"first_pass": total, "first_pass_normalized": normalized}


MLM_SCORING = Format(
    "mlm-scoring",
    read_json,
    write=write_json,
    end=end_json,
    holds=lambda hypothesis, name: name in hypothesis.features or name in kept_of(hypothesis),
)
NOBPE = Format(
    "nobpe",
    read_nobpe,
    scale=ScoreScale(length_normalized=True),
    counted_ids=True,
    written_as="mlm-scoring",
)
