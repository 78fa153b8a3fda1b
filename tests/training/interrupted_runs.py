"""Short runs that die, and what is left of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from training_runs import HELD_OUT, Silent, tuned

from mlmfast.training import ScheduleSettings, TrainingSettings

SETTINGS = TrainingSettings(
    steps=4,
    batch_size=2,
    evaluate_every=2,
    checkpoint_every=2,
    schedule=ScheduleSettings(2e-3, "inverse_sqrt", 1),
)
NAMES = {"config.json", "metrics.jsonl", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


class Death(BaseException):
    """Ends a run as a kill does: no code of ours handles it."""


def run(
    folder: Path,
    settings: TrainingSettings = SETTINGS,
    *,
    resume: bool = True,
    held_out: list[str] | None = HELD_OUT[:6],
    **options,
) -> None:
    tuned(folder, settings, resume=resume, held_out=held_out, **options)


def content(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in NAMES}


class DyingListener(Silent):
    """Ends its run after a step; `begun`: the steps done before it."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.begun = -1

    def started(self, step: int) -> None:
        self.begun = step

    def stepped(self, record: dict) -> None:
        if record["step"] == self.last:
            raise Death


def die_after(step: int, folder: Path, settings: TrainingSettings = SETTINGS) -> None:
    with pytest.raises(Death):
        run(folder, settings, listener=DyingListener(step))
