"""The test data, and scorers of the tiny models loaded once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import mlmfast

DATA = Path(__file__).parent / "data"
MODELS = DATA / "models"
TEXT = DATA / "text"
NATIVE = (
    "bert",
    "roberta",
    "distilbert",
    "albert",
    "electra",
    "xlm-roberta",
    "camembert",
    "modernbert",
    "esm2",
    "sapiens-vh",
    "bert-legacy-names",
    "bert-sharded",
)
"""Models that the native engine runs, and the packed one."""


@cache
def tiny_scorer(name: str, precision: str = "float32", engine: str = "torch") -> mlmfast.Scorer:
    """The scorer of a folder of tests/data/models, one worker."""
    return mlmfast.load(MODELS / name, precision=precision, engine=engine, workers=1)


def read_lines(name: str) -> list[str]:
    """The lines of a file of tests/data/text."""
    return (TEXT / name).read_text(encoding="utf-8").removesuffix("\n").split("\n")
