"""The training runs of the study of scoring rules: which there are, on what text, from which weights."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from mlmfast.engines.base import ModelFiles
from mlmfast.engines.torch_load import quiet_transformers
from mlmfast.functional import ScoringRule
from mlmfast.io import InputRecord
from mlmfast.models import EMBEDDED_MODEL
from mlmfast.scorer import open_model
from mlmfast.training import RowSettings, ScheduleSettings, TrainingRows, TrainingSettings, training_rows
from mlmfast.training.metrics_file import read_metrics
from mlmfast.training.output import TOKENIZER_FILES
from mlmfast.training.run import finetune

BLOCK_TOKENS = 64
SMOOTHING = 0.1
TINY_BERT: dict[str, Any] = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 512,
    "max_position_embeddings": 128,
}


@dataclass(frozen=True)
class Figure:
    """A question of the study: the rules compared, by the name of their arm, and how all are trained."""

    arms: dict[str, ScoringRule]
    from_scratch: bool
    steps: int
    batch_size: int
    learning_rate: float
    evaluate_every: int | None = None

    def settings(self, arm: str, seed: int, steps: int) -> TrainingSettings:
        return TrainingSettings(
            steps=steps,
            rule=self.arms[arm],
            batch_size=self.batch_size,
            precision="bfloat16",
            evaluate_every=self.evaluate_every,
            checkpoint_every=steps,
            seed=seed,
            schedule=ScheduleSettings(self.learning_rate, "cosine", warmup_steps=steps // 10),
        )


FIGURES = {
    "scratch": Figure(
        {name: ScoringRule(name) for name in ("log", "brier", "spherical")},
        from_scratch=True,
        steps=200,
        batch_size=32,
        learning_rate=2e-3,
        evaluate_every=40,
    ),
    "finetuned": Figure(
        {name: ScoringRule(name) for name in ("log", "brier", "spherical")},
        from_scratch=False,
        steps=30,
        batch_size=8,
        learning_rate=1e-4,
    ),
    "smoothed": Figure(
        {
            f"{name}, {'with' if masked_log else 'without'} masked log": ScoringRule(
                name, smoothing=SMOOTHING, masked_log=masked_log
            )
            for name in ("brier", "spherical")
            for masked_log in (True, False)
        }
        | {"log": ScoringRule("log", smoothing=SMOOTHING)},
        from_scratch=False,
        steps=30,
        batch_size=8,
        learning_rate=1e-4,
    ),
}


@dataclass(frozen=True)
class Paragraphs:
    """Of a folder of texts, a paragraph per line: some to train on, others held out."""

    train: list[str]
    held_out: list[str]


def read_paragraphs(
    folder: Path, *, shortest: int = 100, every: int = 4, held_out_every: int = 150
) -> Paragraphs:
    """Every `every`-th paragraph of at least `shortest` characters of the folder's .txt and .txt.gz files;
    of these, every `held_out_every`-th is held out. Raises SystemExit if either part is empty."""
    taken = list(_long_lines(folder, shortest))[::every]
    held_out = taken[held_out_every - 1 :: held_out_every]
    train = [text for index, text in enumerate(taken) if (index + 1) % held_out_every]
    if not (train and held_out):
        raise SystemExit(f"{folder}: {len(taken)} paragraphs in its .txt and .txt.gz files, too few")
    return Paragraphs(train, held_out)


def _long_lines(folder: Path, shortest: int) -> Iterator[str]:
    for path in sorted((*folder.glob("*.txt"), *folder.glob("*.txt.gz"))):
        if path.name.startswith(("README", "SOURCE")):
            continue
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
        yield from (line for line in text.splitlines() if len(line) >= shortest)


def blocks_of(texts: Iterable[str], files: ModelFiles) -> TrainingRows:
    """Rows of BLOCK_TOKENS tokens."""
    records = (("texts", InputRecord(line, text)) for line, text in enumerate(texts, 1))
    settings = RowSettings(block_tokens=BLOCK_TOKENS)
    return training_rows(records, files.tokenizer, files.config.max_length, settings, where="texts")


def tiny_bert(folder: Path, seed: int) -> ModelFiles:
    """A TINY_BERT of random weights with the embedded model's tokenizer, written to `folder`."""
    from transformers import BertConfig, BertForMaskedLM

    embedded = open_model()
    torch.manual_seed(seed)
    model = BertForMaskedLM(BertConfig(vocab_size=embedded.config.vocab_size, **TINY_BERT))
    with quiet_transformers():
        model.save_pretrained(folder)
    for pattern in TOKENIZER_FILES:
        for file in embedded.source.folder.glob(pattern):
            shutil.copyfile(file, folder / file.name)
    return open_model(folder)


class Silent:
    """A listener that says nothing."""

    def started(self, step: int) -> None: ...

    def stepped(self, record: dict[str, Any]) -> None: ...

    def evaluated(self, record: dict[str, Any]) -> None: ...

    def saved(self, step: int) -> None: ...


def train(
    files: ModelFiles,
    rows: TrainingRows,
    held_out: TrainingRows | None,
    settings: TrainingSettings,
    output: Path,
) -> list[dict[str, Any]]:
    """Trains into the folder `output`; the held-out figures along the way, each with its step."""
    finetune(files, rows, held_out, settings, output, Silent())
    metrics = read_metrics(output / "metrics.jsonl")
    return [{"step": r["step"], **r["held_out"]} for r in metrics if "held_out" in r]


def described(figure: str, settings: TrainingSettings) -> dict[str, Any]:
    """What a run's figures depend on, but for texts and seed."""
    start = TINY_BERT if FIGURES[figure].from_scratch else EMBEDDED_MODEL
    return {"start": start, "block_tokens": BLOCK_TOKENS, **asdict(settings)}
