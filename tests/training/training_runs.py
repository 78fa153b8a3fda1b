"""Runs of the trainer on the tiny models, as the command makes them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

from mlmfast.engines.base import ModelFiles
from mlmfast.io import InputRecord
from mlmfast.scorer import open_model
from mlmfast.training import RowSettings, TrainingRows, TrainingSettings, training_rows
from mlmfast.training.metrics_file import read_metrics
from mlmfast.training.run import finetune

DATA = Path(__file__).parent.parent / "data"
LINES = (DATA / "text" / "inaugural.txt").read_text("utf-8").splitlines()
TRAIN, HELD_OUT = LINES[:150], LINES[150:]
FAMILIES = (
    "bert",
    "roberta",
    "distilbert",
    "albert",
    "electra",
    "xlm-roberta",
    "camembert",
    "mpnet",
    "deberta-v2",
    "modernbert",
    "esm2",
)


@cache
def tiny_files(name: str = "bert") -> ModelFiles:
    return open_model(DATA / "models" / name)


def rows_of(
    texts: list[str],
    name: str = "bert",
    settings: RowSettings | None = None,
    *,
    max_length: int | None = None,
    whole_word: bool = False,
) -> TrainingRows:
    files = tiny_files(name)
    records = (("a.txt", InputRecord(line, text)) for line, text in enumerate(texts, 1))
    return training_rows(
        records,
        files.tokenizer,
        max_length or files.config.max_length,
        settings or RowSettings(),
        where="a.txt",
        whole_word=whole_word,
    )


class Silent:
    """A listener that says nothing."""

    def started(self, step: int) -> None: ...

    def stepped(self, record: dict) -> None: ...

    def evaluated(self, record: dict) -> None: ...

    def saved(self, step: int) -> None: ...


def tuned(
    output: Path,
    settings: TrainingSettings,
    *,
    name: str = "bert",
    resume: bool = False,
    held_out: list[str] | None = HELD_OUT,
    listener: Silent | None = None,
) -> list[dict]:
    """A run on the inaugural addresses; its metrics."""
    finetune(
        tiny_files(name),
        rows_of(TRAIN, name),
        None if held_out is None else rows_of(held_out, name),
        settings,
        output,
        listener or Silent(),
        resume=resume,
    )
    return read_metrics(output / "metrics.jsonl")


def steps(metrics: list[dict]) -> list[dict]:
    return [record for record in metrics if "loss" in record]


def evaluations(metrics: list[dict]) -> list[dict]:
    return [record["held_out"] for record in metrics if "held_out" in record]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")
