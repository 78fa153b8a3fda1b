"""How many batches are under way at once on a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue

import torch

from mlmfast.engines.packed.graphs import TrunkGraphs

NUM_LANES = 2
"""The double buffering: while the kernels of one batch run, the host packs the next, copies it and launches
its kernels. More would only take memory: the device is busy with one."""


@dataclass(frozen=True)
class Lane:
    """Where one batch at a time runs, its copies and kernels in order."""

    graphs: TrunkGraphs
    stream: torch.cuda.Stream | None
    """None on a CPU. No other lane's, and so copies, which are from and to pinned memory (but for whole
    logits), wait for no kernel but the batch's own, and run on the device's copy engines beside the other
    lane's kernels. A stream for copies alone would hide nothing more: a batch's kernels need its inputs, and
    its results its kernels."""


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
