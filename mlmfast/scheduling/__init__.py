"""From tokenized texts to batches: what to mask, which rows to share, how to pack them. No torch here."""

from mlmfast.scheduling.batches import expand, pad, row_batch
from mlmfast.scheduling.masking import Masking, mask_rows
from mlmfast.scheduling.packing import pack, pack_for_workers
from mlmfast.scheduling.segments import Segments, truncate, window
from mlmfast.scheduling.sharing import share_rows

__all__ = [
    "Masking",
    "Segments",
    "expand",
    "mask_rows",
    "pack",
    "pack_for_workers",
    "pad",
    "row_batch",
    "share_rows",
    "truncate",
    "window",
]
