"""Sample lists, and how tests read and write lists."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mlmfast.errors import InputError
from mlmfast.rescoring import NBestList, RescoredList, first_pass_order, open_lists, read_lists

SAMPLES = Path(__file__).parents[2] / "data" / "nbest"
MANIFEST = SAMPLES / "nemo_manifest.json"
SETTINGS = {"model": "none"}

# Every sample with its format and the options its first-pass order needs.
SAMPLE_FORMATS: list[tuple[str, str, dict[str, Any]]] = [
    ("speech.json", "mlm-scoring", {}),
    ("beams.nobpe", "nobpe", {}),
    ("kaldi", "kaldi", {"lm_scale": 6.5}),
    ("espnet", "espnet", {}),
    ("nemo_beams.tsv", "nemo", {"manifest": MANIFEST}),
    ("marian/aligned.nbest", "moses", {}),
    ("marian/gnmt.nbest", "moses", {}),
    ("marian/nematus.nbest", "moses", {}),
    ("marian/normalized.nbest", "moses", {}),
    ("marian/scorer_input.nbest", "moses", {}),
    ("marian/scorer_output.nbest", "moses", {}),
    ("fairseq.log", "fairseq", {}),
    ("srilm", "srilm", {"lm_scale": 6.5}),
    ("decipher", "srilm", {}),
    ("slf", "htk", {}),
    ("ami/AMI-3E0501_u3005_134168_134318.lat.gz", "htk", {}),
]


def read(source: Any, *args: Any, **options: Any) -> list[NBestList]:
    """All lists of an input without errors."""
    return [item for item in read_lists(source, *args, **options) if isinstance(item, NBestList)]


def read_text(folder: Path, text: str, format: str, **options: Any) -> list[NBestList]:
    path = folder / "lists"
    path.write_text(text, encoding="utf-8", newline="")
    return read(path, format, **options)


def skipped(source: Any, *args: Any, **options: Any) -> tuple[list[NBestList], list[InputError]]:
    """Lists and errors of an input with errors."""
    items = list(read_lists(source, *args, on_error="skip", **options))
    lists = [item for item in items if isinstance(item, NBestList)]
    return lists, [item for item in items if isinstance(item, InputError)]


def texts(nbest: NBestList) -> list[str]:
    return [hypothesis.text for hypothesis in nbest.hypotheses]


def totals(nbest: NBestList) -> list[float]:
    return [hypothesis.features["first_pass"] for hypothesis in nbest.hypotheses]


def numbers(nbest: NBestList) -> list[int]:
    return [hypothesis.number for hypothesis in nbest.hypotheses]


def worst_first(nbest: NBestList, name: str | None = "mlm") -> RescoredList:
    """The list turned around, with totals -1, -2, ... from the new best on and an added score."""
    count = len(nbest.hypotheses)
    scores = tuple(float(place - count) for place in range(count))
    added = {} if name is None else {name: tuple(-0.5 * place for place in range(count))}
    return RescoredList(nbest, tuple(reversed(range(count))), scores, added)


def write(path: Path, format: str, lists: Iterable[RescoredList], **options: Any) -> Path:
    with open_lists(path, format, settings=SETTINGS, **options) as output:
        for rescored in lists:
            output.write(rescored)
        output.finish({})
    return path


def write_back(path: Path, format: str, lists: Iterable[NBestList]) -> Path:
    """The lists as the first pass left them."""
    return write(path, format, map(first_pass_order, lists))
