"""Runs of `distill` on the tiny models, as the command makes them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import mlmfast
from mlmfast.io import InputRecord
from mlmfast.training import ScheduleSettings
from mlmfast.training.distillation.corpus import Corpus, read_corpus, with_corrupted
from mlmfast.training.distillation.report import Trials
from mlmfast.training.distillation.run import DistillationTexts, distill
from mlmfast.training.distillation.settings import DistillationSettings

DATA = Path(__file__).parent.parent / "data"
MODELS = DATA / "models"
LINES = (DATA / "text" / "inaugural.txt").read_text("utf-8").splitlines()
TRAIN, HELD_OUT = LINES[:40], LINES[150:165]
SETTINGS = DistillationSettings(
    steps=6,
    batch_tokens=256,
    corrupted=1,
    evaluate_every=2,
    checkpoint_every=2,
    schedule=ScheduleSettings(2e-3, "inverse_sqrt", 1),
)


@cache
def teacher(name: str = "bert") -> mlmfast.Scorer:
    return mlmfast.load(MODELS / name, precision="float32", workers=1)


def records(texts: list[str]) -> list[tuple[str, InputRecord]]:
    return [("a.txt", InputRecord(line, text)) for line, text in enumerate(texts, 1)]


def corpus_of(texts: list[str], name: str = "bert", corrupted: int = 0) -> Corpus:
    files = teacher(name).files
    length = files.config.max_length
    clean, counts = read_corpus(records(texts), files.tokenizer, length, where="a.txt", on_error="skip")
    return with_corrupted(clean, counts, corrupted, 0, files.tokenizer, length)[0]


class Silent:
    """A listener that says nothing."""

    def started(self, step: int) -> None: ...

    def stepped(self, record: dict) -> None: ...

    def evaluated(self, record: dict) -> None: ...

    def saved(self, step: int) -> None: ...

    def scoring(self, name: str, num_texts: int) -> None: ...

    def scored(self, num_tokens: int, num_texts: int) -> None: ...


def distilled(
    output: Path,
    settings: DistillationSettings = SETTINGS,
    *,
    name: str = "bert",
    scorer: mlmfast.Scorer | None = None,
    train: list[str] = TRAIN,
    held_out: list[str] | None = HELD_OUT,
    trials: Trials | None = None,
    listener: Silent | None = None,
    **options: object,
) -> dict:
    """A run on the inaugural addresses; its summary."""
    held = None if held_out is None else corpus_of(held_out, name, settings.corrupted)
    texts = DistillationTexts(
        corpus_of(train, name, settings.corrupted),
        held,
        0 if held_out is None else corpus_of(held_out, name).num_texts,
        trials or Trials(),
    )
    return distill(scorer or teacher(name), texts, settings, output, listener or Silent(), **options)
