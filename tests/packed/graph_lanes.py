"""The lanes of a GPU, there and on a CPU, where captured functions are called again, on the same buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from tiny_models import tiny_scorer

from mlmfast.engines.packed.buckets import Bucket
from mlmfast.engines.packed.engine import PackedEngine
from mlmfast.engines.packed.forward import Trunk
from mlmfast.engines.packed.graphs import Capture, CudaCapture, TrunkGraphs
from mlmfast.engines.packed.lanes import Lane, Lanes
from mlmfast.types import TargetOutputs

CPU = torch.device("cpu")


def call_again(function: Callable[[], Trunk]) -> Callable[[], Trunk]:
    """Once at the capture, as there; its results are not kept."""
    function()
    return function


@contextmanager
def with_graphs(
    name: str,
    precision: str = "float32",
    *,
    sizes: tuple[int, ...] = (512, 1024, 2048),
    num_lanes: int = 1,
    capture: Capture | None = None,
) -> Iterator[tuple[PackedEngine, TrunkGraphs]]:
    """The packed engine of a tiny model with other lanes, and the graphs of the first. capture: by default
    CudaCapture on a GPU, else call_again."""
    engine = tiny_scorer(name, precision, "packed").engine
    assert isinstance(engine, PackedEngine)
    lanes = [new_lane(engine, sizes, capture) for _ in range(num_lanes)]
    before, engine._lanes = engine._lanes, Lanes(lanes)
    try:
        yield engine, lanes[0].graphs
    finally:
        engine._lanes = before


def new_lane(engine: PackedEngine, sizes: tuple[int, ...], capture: Capture | None) -> Lane:
    device, stream = engine._device, None
    if device.type == "cuda":
        stream, capture = torch.cuda.Stream(device), capture or CudaCapture()
    graphs = TrunkGraphs(engine._encoder, sizes, engine.max_length, device, capture or call_again)
    return Lane(graphs, stream)


def buckets(graphs: TrunkGraphs) -> list[Bucket]:
    """Those captured."""
    return [bucket for bucket, _, _ in graphs._captured]


def poison(graphs: TrunkGraphs) -> None:
    """Every byte that captured kernels read becomes 0xFF: ids of -1, and NaN."""
    with torch.inference_mode():
        for captured in graphs._captured.values():
            captured.buffer.fill_(0xFF)
            if captured.buffer.is_cuda:
                torch.cuda.synchronize(captured.buffer.device)  # The lane's stream is another.


def assert_same(found: TargetOutputs, expected: TargetOutputs, bound: float = 5e-5) -> None:
    for name, values in vars(expected).items():
        own = getattr(found, name)
        if values is None:
            assert own is None
        elif values.dtype == np.int32:
            np.testing.assert_array_equal(own, values)
        else:
            np.testing.assert_allclose(own, values, rtol=0, atol=bound)
