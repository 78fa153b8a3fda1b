"""CUDA graphs of the encoder but its last layer: one launch in place of hundreds.

The last layer and the head depend on how many places a batch has and what is asked of them; padded places
would cost a vocabulary each, and so these launches stay.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mlmfast.engines.packed.buckets import Bucket, bucket_for, padded
from mlmfast.engines.packed.forward import Encoder, Trunk
from mlmfast.engines.packed.layout import HostArrays, HostLayout, in_one_buffer, on_device, views
from mlmfast.kernels.encoder_inputs import Layout

logger = logging.getLogger(__name__)

Capture = Callable[[Callable[[], Trunk]], Callable[[], Trunk]]
"""From a function that launches kernels to one that launches them all again, on the same memory."""
CAPTURING = threading.Lock()


class CudaCapture:
    """Captures on the current stream. Its graphs share the memory of what is between their kernels: they must
    run one after the other."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, function: Callable[[], Trunk]) -> Callable[[], Trunk]:
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        function()  # Kernels are compiled, and libraries take their memory, before a capture.
        with (
            CAPTURING,
            torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"),
        ):
            outputs = function()

        def replay() -> Trunk:
            graph.replay()
            return outputs

        return replay


@dataclass(frozen=True)
class CapturedTrunk:
    buffer: Tensor
    """uint8, on the device: the inputs that the graph reads. A batch overwrites all of it."""
    layout: Layout
    """Views of the buffer, no places."""
    replay: Callable[[], Trunk]


class TrunkGraphs:
    """Encoder.trunk by graphs, each captured when first needed. For one thread at a time."""

    def __init__(
        self,
        encoder: Encoder,
        sizes: tuple[int, ...],
        max_length: int,
        device: torch.device,
        capture: Capture,
    ) -> None:
        """sizes: of buckets.sizes_up_to."""
        self._encoder = encoder
        self._sizes = sizes
        self._max_length = max_length
        self._device = device
        self._capture = capture
        self._captured: dict[tuple[Bucket, int, bool], CapturedTrunk] = {}

    def load(self, host: HostLayout) -> tuple[Layout, Callable[[], Trunk]] | None:
        """The batch on the device, its rows padded, and its trunk, until the next is loaded; None where no
        graph is for it, or a capture fails: no other is tried then."""
        bucket = bucket_for(host, self._sizes)
        if bucket is None:
            return None
        inputs = padded(host, bucket)
        key = bucket, host.mask_token_id, inputs["text_types"] is not None
        if key not in self._captured:
            try:
                self._captured[key] = self._capture_trunk(host, inputs, bucket)
            except RuntimeError as error:  # of memory, most likely
                logger.warning("no more CUDA graphs are captured: %s", error)
                self._sizes = ()
                return None
        captured = self._captured[key]
        captured.buffer.copy_(in_one_buffer(inputs, self._device), non_blocking=True)
        return replace(captured.layout, **on_device(host.places, self._device)), captured.replay

    def _capture_trunk(self, host: HostLayout, inputs: HostArrays, bucket: Bucket) -> CapturedTrunk:
        buffer = in_one_buffer(inputs, self._device).to(self._device, copy=True)
        static = replace(
            host, num_tokens=bucket.num_tokens, longest_row=min(self._max_length, bucket.num_tokens)
        )
        no_places = {name: None if array is None else array[:0] for name, array in host.places.items()}
        layout = static.layout(views(buffer, inputs) | on_device(no_places, self._device))
        return CapturedTrunk(buffer, layout, self._capture(lambda: self._encoder.trunk(layout)))
