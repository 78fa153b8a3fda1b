"""Which products of parts the emulated float32 products take, on every instruction set this CPU runs."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from mlmfast import _core

LOW = 255 / 256 / 256
"""What factors have beyond a high part in 64ths: the most that rounds down, and a bfloat16 itself."""


def in_two_parts(rng: np.random.Generator, num_rows: int, size: int) -> NDArray[np.float32]:
    """Factors from 1 to 2 that a high and a low bfloat16 hold exactly, the low one as large as it gets."""
    return (1 + rng.integers(64, size=(num_rows, size)) / 64 + LOW).astype(np.float32)


@pytest.mark.parametrize("isa", _core.available_isas())
@pytest.mark.parametrize("size", [1, 3, 33, 128])
def test_four_products_leave_out_nothing_and_three_low_times_low(size: int, isa: str) -> None:
    rng = np.random.default_rng(size)
    num_rows, num_classes = 37, 65
    x, weight = in_two_parts(rng, num_rows, size), in_two_parts(rng, num_classes, size)
    targets = rng.integers(num_classes, size=num_rows)
    exact = (x.astype(np.float64) * weight[targets]).sum(axis=1)
    for precision, expected in (("bf16x4", exact), ("bf16x3", exact - size * LOW**2)):
        offsets = np.arange(num_rows + 1)
        found = _core.linear_score(
            x, weight, None, targets.astype(np.int32), offsets, ["log"], precision, isa, 1
        )["logit"]
        np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=precision)
