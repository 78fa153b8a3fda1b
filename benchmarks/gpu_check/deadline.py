"""When the time of a part is over; what it has not saved by then is lost."""

from __future__ import annotations

import os
import time

ENDS = "MLMFAST_GPU_CHECK_ENDS"
"""The variable that says it, as time.time() does."""


def seconds_left() -> float:
    return float(os.environ.get(ENDS, "inf")) - time.time()
