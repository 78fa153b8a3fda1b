"""Shared set-up: offline, one thread, scorers of the tiny models loaded once."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"

from functools import cache
from pathlib import Path

import torch

import mlmfast

DATA = Path(__file__).parent / "data"
MODELS = DATA / "models"
TEXT = DATA / "text"

torch.set_num_threads(1)


@cache
def tiny_scorer(name: str, precision: str = "float32") -> mlmfast.Scorer:
    """The scorer of a folder of tests/data/models, one worker."""
    return mlmfast.load(MODELS / name, precision=precision, workers=1)


def read_lines(name: str) -> list[str]:
    """The lines of a file of tests/data/text."""
    return (TEXT / name).read_text(encoding="utf-8").removesuffix("\n").split("\n")
