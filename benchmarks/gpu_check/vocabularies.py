"""The vocabularies of the models that are timed, and whether one of them alone is asked for."""

from __future__ import annotations

import os

ONE_ALONE = "MLMFAST_GPU_CHECK_VOCABULARY"
"""The variable that says its size."""
VOCABULARIES = (30_522, 250_002)
"""BERT's and XLM-R's."""


def asked_for() -> tuple[int, ...]:
    """Those to be timed."""
    alone = os.environ.get(ONE_ALONE)
    return VOCABULARIES if alone is None else (int(alone),)
