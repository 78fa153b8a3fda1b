"""Length normalisation of a score: what a sum of log-probabilities is divided by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlmfast.errors import SettingsError

Float64Array = NDArray[np.float64]

KINDS = ("none", "tokens", "gnmt")
MAX_ALPHA = 10.0


@dataclass(frozen=True)
class Normalisation:
    """`none`, `tokens` (the mean per token) or `gnmt:ALPHA` (Wu et al. 2016, section 7, equation 14).

    Raises SettingsError for another kind, or an alpha that is missing, superfluous or not
    from 0 to 10 (in use are 0 to 1).
    """

    kind: str = "none"
    alpha: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise SettingsError(f"unknown normalisation {self.kind!r}; expected none, tokens or gnmt:ALPHA")
        if (self.kind == "gnmt") != (self.alpha is not None):
            raise SettingsError(f"normalisation {self}: gnmt takes an alpha (gnmt:0.6), the others none")
        if self.alpha is not None and not 0 <= self.alpha <= MAX_ALPHA:
            raise SettingsError(f"normalisation {self}: expected an alpha from 0 to {MAX_ALPHA:g}")

    @classmethod
    def parse(cls, text: str) -> Normalisation:
        """The normalisation that `str` wrote. Raises SettingsError."""
        kind, colon, alpha = text.partition(":")
        try:
            return cls(kind, float(alpha) if colon else None)
        except ValueError as error:
            if isinstance(error, SettingsError):
                raise
            raise SettingsError(f"normalisation {text!r}: expected a number after gnmt:") from error

    def __str__(self) -> str:
        return self.kind if self.alpha is None else f"{self.kind}:{self.alpha:g}"

    def divisors(self, lengths: NDArray[Any]) -> Float64Array:
        """float64[k], never 0, for k lengths; a length of 0 counts as 1 under `tokens`."""
        counts = np.asarray(lengths, dtype=np.float64)
        if self.kind == "tokens":
            return np.maximum(counts, 1.0)
        if self.alpha is not None:
            return np.asarray((5 + counts) ** self.alpha / (5 + 1) ** self.alpha)
        return np.ones_like(counts)


NOT_NORMALISED = Normalisation()
