"""The states of a chain: what it starts from, and what is recorded of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlmfast.errors import InputError
from mlmfast.types import BoolArray, Int32Array


@dataclass(frozen=True)
class StartState:
    """A chain's beginning. A free position may hold the mask token: then it is yet to be filled.

    input_ids int32[n], special tokens included; is_free bool[n], the positions that are sampled, none of them
    a special token's; token_type_ids int32[n] or None. Raises InputError for other arrays.
    """

    input_ids: Int32Array
    is_free: BoolArray
    token_type_ids: Int32Array | None = None

    def __post_init__(self) -> None:
        expected = {"input_ids": np.int32, "is_free": np.bool_, "token_type_ids": np.int32}
        for name, dtype in expected.items():
            array = getattr(self, name)
            if array is None and name == "token_type_ids":
                continue
            if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != 1:
                raise InputError(f"{name} of a start is {array!r:.60}; expected {np.dtype(dtype)}[n]")
            if len(array) != len(self.input_ids):
                raise InputError(
                    f"{name} of a start has {len(array)} values for {len(self.input_ids)} tokens"
                )


@dataclass(frozen=True)
class ChainState:
    """A chain after `step` steps.

    input_ids int32[n]; energy: of this state if it was asked for, None while a position is yet to be filled
    and where there is no token; accepted: whether the proposal of this step was, None before the first step
    and for samplers without proposals.
    """

    chain: int
    step: int
    input_ids: Int32Array
    energy: float | None
    accepted: bool | None
