"""Autocorrelation and effective sample size of one chain's energies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64Array = NDArray[np.float64]
Values = Sequence[float] | NDArray[Any]

SHORTEST_CHAIN = 4
"""Values below which no effective sample size is given."""


def autocorrelation(values: Values) -> Float64Array | None:
    """float64[n], the autocorrelation of n values at lags 0 to n - 1; None if they are all the same.

    Autocovariances are sums over n - lag pairs divided by n (Geyer 1992, "Practical Markov Chain Monte
    Carlo"), by FFT in O(n log n).
    """
    given = np.asarray(values, dtype=np.float64)
    num_values = len(given)
    if num_values == 0 or np.all(given == given[0]):
        return None
    scaled = given / np.abs(given).max()  # so that no square over- or underflows
    deviations = scaled - scaled.mean()
    size = 1 << (2 * num_values - 1).bit_length()  # zeros behind the values, so that the sums do not wrap
    spectrum = np.fft.rfft(deviations, size)
    covariances = np.fft.irfft(spectrum * spectrum.conj(), size)[:num_values]
    return np.asarray(covariances / covariances[0])


def autocorrelation_time(correlations: Float64Array) -> float | None:
    """Values per independent one: -1 + 2 times the sum of autocorrelations from lag 0, as far as they can be
    told from noise. None for fewer than 4 values.

    That is Geyer's initial monotone sequence (1992, section 3.3): sums of two neighbouring lags, 0 and 1, 2
    and 3, ..., up to the first that is not positive, none counted larger than the one before it. At least
    1 / log10(n), which keeps the effective size of antithetic chains finite (as Stan does).
    """
    num_values = len(correlations)
    if num_values < SHORTEST_CHAIN:
        return None
    even = correlations[: num_values - num_values % 2]
    pairs = even[0::2] + even[1::2]
    positive = pairs[: np.argmax(pairs <= 0)] if (pairs <= 0).any() else pairs
    time = -1 + 2 * float(np.minimum.accumulate(positive).sum())
    return max(time, 1 / math.log10(num_values))


def effective_sample_size(values: Values) -> float | None:
    """How many independent values would tell the mean as well as these n: n / autocorrelation time.

    None for fewer than 4 values, and for values that are all the same: a chain that never moved.
    """
    correlations = autocorrelation(values)
    time = None if correlations is None else autocorrelation_time(correlations)
    return None if time is None else len(values) / time
