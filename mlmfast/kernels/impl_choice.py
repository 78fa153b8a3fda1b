"""Which impl runs an operator: the one asked for, or with `auto` the first that can."""

from __future__ import annotations

import importlib
import logging
from functools import cache
from types import ModuleType
from typing import Any

from torch import Tensor

from mlmfast.errors import MlmfastError, SettingsError

logger = logging.getLogger(__name__)

IMPLS = ("auto", "reference", "torch", "cpu", "triton", "cuda")
"""`reference` is plain torch on whole logits; the others compute by chunks or tiles."""
MODULES = {
    "linear_scoring_rule_loss": {
        "torch": "rule_chunked",
        "cpu": "rule_cpu",
        "triton": "rule_triton",
        "cuda": "rule_cuda",
    },
    "linear_score": {
        "reference": "score_reference",
        "torch": "score_chunked",
        "cpu": "score_cpu",
        "triton": "score_triton",
    },
}
"""The modules of mlmfast.kernels that carry out a function of mlmfast.functional."""
PREFERENCE = {"cpu": ("cpu", "torch"), "cuda": ("triton", "torch")}
"""What `auto` tries, by the kind of device; elsewhere it is `torch`."""


def check_impl(impl: str) -> None:
    if impl not in IMPLS:
        raise SettingsError(f"impl: expected one of {', '.join(IMPLS)}, got {impl!r}")


def choose_impl(function: str, impl: str, input: Tensor, weight: Tensor, what: Any) -> ModuleType:
    """The module of `impl`, or of the first that can run if it is `auto`.

    what: the ScoringRule or the ScoreRequest. Raises SettingsError that says why none can.
    """
    preferred = PREFERENCE.get(input.device.type, ("torch",))
    candidates = preferred if impl == "auto" else (impl,)
    reasons: list[str] = []
    for candidate in candidates:
        reason = why_not(function, candidate, input, weight, what)
        if reason is None:
            if impl == "auto":
                log_choice(function, candidate, f"{input.dtype} on {input.device}", "; ".join(reasons))
            return load_impl(function, candidate)
        reasons.append(f"{candidate!r} cannot run here: {reason}")
    raise SettingsError(f"impl: {'; '.join(reasons)}; impl='reference' runs everything")


def why_not(function: str, impl: str, input: Tensor, weight: Tensor, what: Any) -> str | None:
    """None if this impl can run here, else why not."""
    if impl not in MODULES[function]:
        return f"{function} has no such kernel"
    try:
        module = load_impl(function, impl)
    except (MlmfastError, ImportError) as error:
        return str(error)
    reason: str | None = module.can_run(input, weight, what)
    return reason


@cache
def load_impl(function: str, impl: str) -> ModuleType:
    return importlib.import_module(f"mlmfast.kernels.{MODULES[function][impl]}")


@cache
def log_choice(function: str, impl: str, where: str, passed_over: str) -> None:
    logger.debug("%s: impl 'auto' uses %r for %s. %s", function, impl, where, passed_over)
