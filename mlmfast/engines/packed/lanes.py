"""How many batches are under way at once on a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue

import torch

from mlmfast.engines.packed.graphs import TrunkGraphs

NUM_LANES = 2
"""While the kernels of one batch run, the host packs, copies and launches the next. More would only take
memory: the device is busy with one."""


@dataclass(frozen=True)
class Lane:
    """Where one batch at a time runs, its copies and kernels in order."""

    graphs: TrunkGraphs
    stream: torch.cuda.Stream | None
    """None on a CPU."""


class Lanes:
    """Taken by threads in turn; where there are more threads, they wait."""

    def __init__(self, lanes: Iterable[Lane]) -> None:
        self._free: SimpleQueue[Lane] = SimpleQueue()
        for lane in lanes:
            self._free.put(lane)

    @contextlib.contextmanager
    def one(self) -> Iterator[TrunkGraphs]:
        lane = self._free.get()
        try:
            # What the batch leaves in flight is read again on this stream alone, so nothing is waited for.
            with torch.cuda.stream(lane.stream):
                yield lane.graphs
        finally:
            self._free.put(lane)
