"""Packed rows on a GPU: torch's matrix products and Triton kernels of our own between them.

On a CPU, where it is slow and for tests, the kernels' plain twins or Triton's interpreter stand in.
"""

from __future__ import annotations

import contextlib

import torch

from mlmfast import _core
from mlmfast.engines.base import ModelFiles, Outputs
from mlmfast.engines.packed.buckets import sizes_up_to
from mlmfast.engines.packed.budget import TokenBudget
from mlmfast.engines.packed.checks import check_batch
from mlmfast.engines.packed.forward import Encoder
from mlmfast.engines.packed.graphs import CudaCapture, TrunkGraphs
from mlmfast.engines.packed.head import Head
from mlmfast.engines.packed.lanes import NUM_LANES, Lane, Lanes
from mlmfast.engines.packed.layout import host_layout
from mlmfast.engines.packed.memory import (
    CPU_BATCH_TOKENS,
    fitting_size,
    weights_within_memory,
)
from mlmfast.engines.packed.spec import EncoderSpec
from mlmfast.engines.packed.weights import read_weights
from mlmfast.engines.torch_device import choose_device, describe_device, use_one_thread
from mlmfast.errors import ModelError, SettingsError, UnsupportedModelError
from mlmfast.kernels.encoder_ops import choose_encoder_impl, encoder_operators, why_no_model
from mlmfast.scheduling.batches import in_batch_order
from mlmfast.types import JsonRecord, RowBatch, TargetOutputs

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""By precision, of the matrix products; all else is in float32."""


class PackedEngine:
    """See engines.base.Engine."""

    def __init__(self, files: ModelFiles, *, precision: str = "float32", device: str | None = None) -> None:
        """Raises UnsupportedModelError for a model that a ModelSpec cannot say, ModelError for one not to be
        trusted, SettingsError for a precision or device that does not fit."""
        if precision not in DTYPES:
            raise SettingsError(f"precision {precision!r}: the packed engine has {', '.join(DTYPES)}")
        self._device = choose_device(device)
        self._precision = precision
        self._operators = encoder_operators(choose_encoder_impl(self._device))
        stored = _read(files)
        dtype = DTYPES[precision]
        self._spec = EncoderSpec.of(stored["spec"])
        reason = why_no_model(self._operators.impl, self._spec.head_size)
        if reason is not None:
            raise UnsupportedModelError(f"{files.source.name}: {reason}; use engine='torch'")
        with weights_within_memory(precision, self._device):
            weights = read_weights(stored["tensors"], self._spec, dtype, self._device)
        self._encoder = Encoder(self._spec, weights, self._operators, dtype)
        self._head = Head(self._spec, weights.head, self._operators, dtype)
        self.max_length = self._spec.max_length
        self.max_batch_tokens = CPU_BATCH_TOKENS
        self.max_workers: int | None = None
        self._lanes: Lanes | None = None
        self._budget = TokenBudget()
        if self._device.type == "cuda":
            # Sums in float32, also where a product is split.
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
            torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
            size = fitting_size(self._spec, dtype, self._device)
            self.max_batch_tokens, self.max_workers = size - 1, NUM_LANES
            self._lanes = self._cuda_lanes(size)

    def prepare_thread(self) -> None:
        """See engines.base.Engine."""
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)  # Or torch takes some memory of the first one too.
        use_one_thread(self._device)

    def score(self, batch: RowBatch, outputs: Outputs) -> TargetOutputs:
        """See engines.base.Engine. In parts where memory is short. Raises InputError for bad batches,
        SettingsError where one row alone does not fit."""
        check_batch(batch, self._spec)  # Before any of it is cut.
        return self._budget.score(batch, lambda part: self._score(part, outputs))

    def _score(self, batch: RowBatch, outputs: Outputs) -> TargetOutputs:
        host = host_layout(batch, self._spec)
        lane = contextlib.nullcontext() if self._lanes is None else self._lanes.one()
        with torch.inference_mode(), lane as graphs:
            loaded = None if graphs is None else graphs.load(host)
            layout, trunk = (host.on_device(self._device), None) if loaded is None else loaded
            states = self._encoder.states(layout, trunk)
            found = self._head(states, layout, host.target_offsets, outputs)
        return in_batch_order(found, host.order)

    def _cuda_lanes(self, size: int) -> Lanes:
        """size: of the largest bucket. Each lane has a stream and graphs of its own."""
        torch.cuda.synchronize(self._device)  # The weights are there, whatever the stream.
        return Lanes(
            Lane(
                TrunkGraphs(self._encoder, sizes_up_to(size), self.max_length, self._device, CudaCapture()),
                torch.cuda.Stream(self._device),  # type: ignore[no-untyped-call]
            )
            for _ in range(NUM_LANES)
        )

    def describe(self) -> JsonRecord:
        """See engines.base.Engine."""
        versions = {"torch": torch.__version__}
        if self._operators.impl == "triton":
            import triton

            versions["triton"] = triton.__version__
        return {
            "engine": "packed",
            "precision": self._precision,
            **describe_device(self._device),
            "impl": self._operators.impl,
            "versions": versions,
        }


def _read(files: ModelFiles) -> _core.EncoderFile:
    try:
        return _core.read_encoder(str(files.source.folder))
    except _core.UnsupportedModelError as error:
        raise UnsupportedModelError(str(error)) from error
    except _core.ModelError as error:
        raise ModelError(str(error)) from error
