"""The scoring rules: which there are, and which of their settings fit together."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mlmfast.errors import SettingsError

RULES = ("log", "brier", "spherical", "power", "pseudospherical")
FAMILIES = {"brier": "power", "spherical": "pseudospherical"}
"""Rules that are the member with alpha 2 of a family."""


@dataclass(frozen=True)
class ScoringRule:
    """A proper scoring rule used as a loss: its negative score (Shao et al. 2024, arXiv:2405.18906).

    name: one of RULES. alpha: the exponent of `power` and `pseudospherical`, above 1; `brier` and
    `spherical` are the two at alpha 2. smoothing: how much of the target's weight is spread evenly over
    all classes. masked_log: with smoothing, rules other than log get `-smoothing/V * sum log p_j` over
    the classes whose p_j is below smoothing/V (the paper's masked logarithmic score).

    Raises SettingsError for values that are not those.
    """

    name: str
    alpha: float = 2.0
    smoothing: float = 0.0
    masked_log: bool = True

    def __post_init__(self) -> None:
        if self.name not in RULES:
            raise SettingsError(f"rule: expected one of {', '.join(RULES)}, got {self.name!r}")
        if not 1 < self.alpha < math.inf:
            raise SettingsError(f"alpha: expected a number above 1, got {self.alpha}")
        if not 0 <= self.smoothing < 1:
            raise SettingsError(f"smoothing: expected a number from 0 to below 1, got {self.smoothing}")
        if self.alpha != 2 and self.name not in FAMILIES.values():
            raise SettingsError(
                f"alpha: rule {self.name!r} takes none but 2, got {self.alpha}; "
                "rules 'power' and 'pseudospherical' take any"
            )

    @property
    def family(self) -> str:
        """`log`, `power` or `pseudospherical`."""
        return FAMILIES.get(self.name, self.name)

    @property
    def has_masked_log(self) -> bool:
        return self.masked_log and self.smoothing > 0 and self.name != "log"
