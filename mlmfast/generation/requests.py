"""What a chain asks of the model while it runs. Its sampler is a generator that yields requests."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from mlmfast.generation.distribution import Distribution, Float64Array
from mlmfast.types import BoolArray, Int32Array, Int64Array

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Draw:
    """Tokens drawn at k positions of one row, each from its own distribution there.

    input_ids int32[n]; token_type_ids int32[n] or None; positions int64[k], masked in the row if `masked`;
    uniforms float64[k], a uniform number for each. with_log_probs: `Drawn.log_probs` are wanted.
    """

    input_ids: Int32Array
    token_type_ids: Int32Array | None
    positions: Int64Array
    uniforms: Float64Array
    distribution: Distribution
    masked: bool = True
    with_log_probs: bool = False


@dataclass(frozen=True)
class Drawn:
    """What came of a Draw.

    tokens int32[k]. changes float64[k]: the logit of the drawn token less that of the token before it in the
    same row; reversible bool[k]: whether the token before could have been drawn. log_probs float64[k], of the
    drawn tokens among the allowed ones at temperature 1; NaN unless asked for.
    """

    tokens: Int32Array
    changes: Float64Array
    reversible: BoolArray
    log_probs: Float64Array


@dataclass(frozen=True)
class Potentials:
    """The potentials of the tokens at k positions, float64[k], a row for each with that position masked.

    kind `raw`: logits; `norm`: log-probabilities, at most 0. Columns as of Draw.
    """

    input_ids: Int32Array
    token_type_ids: Int32Array | None
    positions: Int64Array
    kind: str


Request = Draw | Potentials
Asking = Generator[Request, Any, Answer]
"""A part of a chain: it yields requests, is sent what they ask for, and ends with an Answer."""
