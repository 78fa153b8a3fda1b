"""What an engine is, and how one is chosen."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from mlmfast.engines.onnx_folder import GraphDescription
from mlmfast.errors import MissingExtraError, SettingsError, UnsupportedModelError
from mlmfast.extras import require
from mlmfast.models import Checkpoint, ModelConfig, ModelSource
from mlmfast.tokenization import Tokenizer
from mlmfast.types import JsonRecord, RowBatch, TargetOutputs

logger = logging.getLogger(__name__)

ENGINES = ("auto", "native", "packed", "torch", "onnx")
NVIDIA_DRIVER = Path("/dev/nvidiactl")
"""Where it is, torch is asked for a GPU; elsewhere torch need not even be imported."""
PRECISIONS = ("float32", "bf16x3", "bf16x4", "bfloat16", "float16", "int8")
TORCH_PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Outputs:
    """What is wanted per target beside its log-probability, as columns of TargetOutputs; top_k most probable
    tokens."""

    rank: bool = False
    entropy: bool = False
    top_k: int = 0
    word_start: bool = False
    logit: bool = False
    logits: bool = False

    def require_values_alone(self) -> None:
        """Raises SettingsError for what a distribution over the vocabulary has, which a student does not."""
        if self != Outputs():
            raise SettingsError(f"a student gives values alone, not {self}")


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


@runtime_checkable
class Closable(Protocol):
    """An engine that holds more than memory: the scorer closes it when it is closed itself."""

    def close(self) -> None:
        """Lets go of all of it; `score` raises SettingsError from then on."""


@runtime_checkable
class Immediate(Protocol):
    """An engine that any thread may call without `prepare_thread`, and that outlives its scorer's `close`:
    the caller's thread may compute small batches."""

    max_immediate_tokens: int
    """Tokens of such a batch, which cannot be interrupted."""


@dataclass(frozen=True)
class ModelFiles:
    """An opened model folder: everything an engine is built from. graph: of an ONNX export."""

    source: ModelSource
    config: ModelConfig
    checkpoint: Checkpoint
    tokenizer: Tokenizer
    graph: GraphDescription | None = None


def open_engine(
    files: ModelFiles, *, engine: str = "auto", precision: str | None = None, device: str | None = None
) -> Engine:
    """Load a model into a runtime.

    `auto` is the native engine on a CPU, the packed one on a GPU, and torch for what they cannot run; an ONNX
    export runs in ONNX Runtime alone.
    Raises SettingsError for unknown names and options that do not fit, ModelError for a bad model.
    """
    if engine not in ENGINES:
        raise SettingsError(f"unknown engine {engine!r}; expected one of {', '.join(ENGINES)}")
    if engine == "onnx" or files.graph is not None:
        return _onnx_engine(files, engine, precision, device)
    if precision is not None and precision not in PRECISIONS:
        raise SettingsError(f"unknown precision {precision!r}; expected one of {', '.join(PRECISIONS)}")
    if engine == "native" and device not in (None, "cpu"):
        raise SettingsError(f"device {device!r}: the native engine runs on 'cpu'; use engine='torch'")
    if engine == "packed":
        return _packed_engine(files, precision or "float32", device)
    on_cpu = device == "cpu" or (device is None and not NVIDIA_DRIVER.exists())
    if files.checkpoint.is_pickle and engine == "native":
        raise UnsupportedModelError("the native engine reads safetensors, not pickles; use engine='torch'")
    reason = ""
    if engine == "native" or (engine == "auto" and on_cpu and not files.checkpoint.is_pickle):
        from mlmfast.engines.native_engine import NativeEngine

        try:
            if precision is None:
                return NativeEngine.fastest_exact(files)
            return NativeEngine(files, precision=precision)
        except UnsupportedModelError as error:
            # A checkpoint that contradicts itself is refused; only what is unknown here goes to torch.
            if engine == "native":
                raise
            reason = f" (the native engine cannot run this model: {error})"
            logger.info("torch is used%s", reason)
    elif engine == "auto" and not on_cpu:
        try:
            return _packed_engine(files, precision or "float32", device, on_gpu=True)
        except (MissingExtraError, SettingsError, UnsupportedModelError) as error:
            reason = f" (the packed engine cannot run this model here: {error})"
            logger.info("torch is used%s", reason)
    return _torch_engine(files, precision or "float32", device, reason)


def _packed_engine(files: ModelFiles, precision: str, device: str | None, *, on_gpu: bool = False) -> Engine:
    """on_gpu: where no device is named. Raises SettingsError, MissingExtraError, UnsupportedModelError where
    it cannot run."""
    if files.checkpoint.is_pickle:
        raise UnsupportedModelError("the packed engine reads safetensors, not pickles; use engine='torch'")
    require("torch", extra="gpu", purpose="the packed engine")
    from mlmfast.engines.packed.devices import open_packed

    return open_packed(files, precision=precision, device=device, on_gpu=on_gpu)


def _torch_engine(files: ModelFiles, precision: str, device: str | None, reason: str) -> Engine:
    if precision not in TORCH_PRECISIONS:
        raise SettingsError(
            f"precision {precision!r}: the torch engine has {', '.join(TORCH_PRECISIONS)}{reason}"
        )
    for package in ("torch", "transformers"):
        require(package, extra="torch", purpose=f"the torch engine{reason}")
    from mlmfast.engines.torch_engine import TorchEngine

    return TorchEngine(files, precision=precision, device=device)


def _onnx_engine(files: ModelFiles, engine: str, precision: str | None, device: str | None) -> Engine:
    name, graph = files.source.name, files.graph
    if engine not in ("auto", "onnx"):
        raise SettingsError(
            f"{name} is an ONNX export, which the {engine} engine cannot run; use engine='onnx'"
        )
    if graph is not None and precision not in (None, graph.precision):
        raise SettingsError(
            f"precision {precision!r}: {name} was exported in {graph.precision}; leave it out, or export "
            "again with the other --precision"
        )
    require("onnxruntime", extra="onnx", purpose="the onnx engine")
    from mlmfast.engines.onnx_engine import OnnxEngine

    return OnnxEngine(files, device=device)
