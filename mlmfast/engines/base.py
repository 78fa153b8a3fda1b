"""What an engine is, and how one is chosen."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from mlmfast.errors import SettingsError
from mlmfast.extras import require
from mlmfast.models import Checkpoint, ModelConfig, ModelSource
from mlmfast.tokenization import Tokenizer
from mlmfast.types import JsonRecord, RowBatch, TargetOutputs

logger = logging.getLogger(__name__)

ENGINES = ("auto", "torch")
PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Outputs:
    """What is wanted per target beside its log-probability; top_k most probable tokens."""

    rank: bool = False
    entropy: bool = False
    top_k: int = 0
    word_start: bool = False


class Engine(Protocol):
    """Forwards batches of rows. Called from several threads at once."""

    max_length: int
    """Tokens the model takes in one row, special tokens included."""
    max_batch_tokens: int
    """The token budget of a batch that suits this engine, where the user names none."""

    max_workers: int | None
    """How many threads can usefully call it at once; None: as many as there are cores."""

    def prepare_thread(self) -> None:
        """Called once in each thread that will call `score`."""

    def score(self, batch: RowBatch, outputs: Outputs) -> TargetOutputs:
        """Results of the batch's targets, in order."""

    def describe(self) -> JsonRecord:
        """Name, precision, device, versions: what a result file must say of how it was computed."""


@dataclass(frozen=True)
class ModelFiles:
    """An opened model folder: everything an engine is built from."""

    source: ModelSource
    config: ModelConfig
    checkpoint: Checkpoint
    tokenizer: Tokenizer


def open_engine(
    files: ModelFiles, *, engine: str = "auto", precision: str | None = None, device: str | None = None
) -> Engine:
    """Load a model into a runtime. Raises SettingsError for unknown names, ModelError for a bad model."""
    if engine not in ENGINES:
        raise SettingsError(f"unknown engine {engine!r}; expected one of {', '.join(ENGINES)}")
    if precision is not None and precision not in PRECISIONS:
        raise SettingsError(f"unknown precision {precision!r}; expected one of {', '.join(PRECISIONS)}")
    for package in ("torch", "transformers"):
        require(package, extra="torch", purpose="the torch engine")
    from mlmfast.engines.torch_engine import TorchEngine

    if engine == "auto":
        logger.info("engine: torch")
    return TorchEngine(files, precision=precision or "float32", device=device)
