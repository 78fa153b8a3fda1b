"""The vocabulary head: hidden states to log-probabilities of targets, without storing the logits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mlmfast.errors import MissingExtraError, SettingsError
from mlmfast.kernels import reference
from mlmfast.types import Float32Array, Int32Array, Int64Array, TargetOutputs

if TYPE_CHECKING:
    from types import ModuleType

    from mlmfast import _core

logger = logging.getLogger(__name__)

HEAD_IMPLS = ("auto", "cpu", "reference")
HEAD_OUTPUTS = ("log_prob", "logit", "logits", "rank", "entropy", "word_start_log_prob")

Scorer = Callable[[Float32Array, Int32Array, Int64Array, Collection[str], int], TargetOutputs]


class Head:
    """A decoder weight [V, H], packed once, that scores rows of hidden states.

    weight float32[V, H]; bias float32[V] or None; subset uint8[V] flags the classes whose total
    probability word_start_log_prob is. impl is `cpu` (the compiled core; `auto` chooses it) or
    `reference` (numpy, float64). isa forces one instruction set of the core (`generic`, `avx2`,
    `avx512`); else the environment variable MLMFAST_ISA does, else it is the fastest. The core sums in
    float32, within 1e-4 of float64 per log-probability for logits up to 50, and gives a row the same
    bits whatever rows stand beside it. One call runs in one thread; several threads may call at once.

    The attribute impl says which runs, isa the instruction set in use (None for `reference`).
    Raises SettingsError for arrays or options that do not fit, MissingExtraError without the core.
    """

    def __init__(
        self,
        weight: Float32Array,
        bias: Float32Array | None = None,
        *,
        impl: str = "auto",
        subset: NDArray[np.uint8] | None = None,
        isa: str | None = None,
    ) -> None:
        if impl not in HEAD_IMPLS:
            raise SettingsError(f"impl: expected one of {', '.join(HEAD_IMPLS)}, got {impl!r}")
        check_array("weight", weight, np.float32, ("V", "H"))
        if weight.size == 0:
            raise SettingsError(f"weight: expected at least one class and one feature, got {weight.shape}")
        self.vocab_size, self.hidden_size = weight.shape
        if bias is not None:
            check_array("bias", bias, np.float32, (self.vocab_size,))
        if subset is not None:
            check_array("subset", subset, np.uint8, (self.vocab_size,))
        self._has_subset = subset is not None
        self.impl = "reference" if impl == "reference" else "cpu"
        self.isa: str | None = None
        if impl == "reference":
            if isa is not None:
                raise SettingsError(f"isa: impl 'reference' takes none, got {isa!r}; leave it out")
            self._score = reference_scorer(weight, bias, subset)
            return
        core = load_core()
        try:
            core_head = core.Head(weight, bias, subset, core.isa() if isa is None else isa)
        except ValueError as error:
            raise SettingsError(f"isa: {error}") from error
        self.isa = core_head.isa
        self._score = core_scorer(core_head)
        if impl == "auto":
            log_choice(core_head.isa)

    def score(
        self,
        hidden: Float32Array,
        target_ids: Int32Array,
        target_offsets: Int64Array,
        *,
        outputs: Collection[str] = ("log_prob",),
        top_k: int = 0,
    ) -> TargetOutputs:
        """What is asked of every target, natural logs.

        hidden float32[m, H]; target_ids int32[t]; target_offsets int64[m+1]: row r owns the targets
        from target_offsets[r] to target_offsets[r+1], none or several. outputs names fields of
        TargetOutputs (log_prob is always there); top_k > 0 adds top_ids and top_log_probs, most
        probable first, equal ones by id. Where log_prob is NaN, rank and top_ids are -1.

        Raises SettingsError for arrays, ids, offsets or names that do not fit.
        """
        check_array("hidden", hidden, np.float32, ("m", self.hidden_size))
        check_array("target_ids", target_ids, np.int32, ("t",))
        check_array("target_offsets", target_offsets, np.int64, (len(hidden) + 1,))
        check_targets(target_ids, target_offsets, self.vocab_size)
        self._check_outputs(outputs, top_k)
        return self._score(hidden, target_ids, target_offsets, outputs, top_k)

    def _check_outputs(self, outputs: Collection[str], top_k: int) -> None:
        unknown = sorted(set(outputs) - set(HEAD_OUTPUTS))
        if unknown:
            raise SettingsError(
                f"outputs: expected names among {', '.join(HEAD_OUTPUTS)}, got {', '.join(unknown)}; "
                "for the most probable classes set top_k"
            )
        if "word_start_log_prob" in outputs and not self._has_subset:
            raise SettingsError("outputs: word_start_log_prob needs a head built with subset=uint8[V]")
        if not 0 <= top_k <= self.vocab_size:
            raise SettingsError(f"top_k: expected 0 to {self.vocab_size} (the vocabulary), got {top_k}")


def reference_scorer(
    weight: Float32Array, bias: Float32Array | None, subset: NDArray[np.uint8] | None
) -> Scorer:
    def score(
        hidden: Float32Array,
        target_ids: Int32Array,
        target_offsets: Int64Array,
        outputs: Collection[str],
        top_k: int,
    ) -> TargetOutputs:
        return reference.target_log_softmax(
            hidden, weight, bias, target_ids, target_offsets, outputs=outputs, top_k=top_k, subset=subset
        )

    return score


def core_scorer(core_head: _core.Head) -> Scorer:
    def score(
        hidden: Float32Array,
        target_ids: Int32Array,
        target_offsets: Int64Array,
        outputs: Collection[str],
        top_k: int,
    ) -> TargetOutputs:
        results = core_head.score(
            hidden,
            target_ids,
            target_offsets,
            logit="logit" in outputs,
            logits="logits" in outputs,
            rank="rank" in outputs,
            entropy="entropy" in outputs,
            subset_log_prob="word_start_log_prob" in outputs,
            top_k=top_k,
        )
        return target_outputs(results)

    return score


def target_outputs(results: _core.HeadResults) -> TargetOutputs:
    """What the core gave, under our names."""
    return TargetOutputs(
        log_prob=results["log_prob"],
        logit=results["logit"],
        logits=results["logits"],
        rank=results["rank"],
        entropy=results["entropy"],
        top_ids=results["top_ids"],
        top_log_probs=results["top_log_probs"],
        word_start_log_prob=results["subset_log_prob"],
    )


def chosen_isa() -> str:
    """The instruction set MLMFAST_ISA names, else the fastest. Raises SettingsError if it cannot run here."""
    try:
        return str(load_core().isa())
    except ValueError as error:
        raise SettingsError(str(error)) from error


def has_matrix_units() -> bool:
    """Whether three bfloat16 products are faster here than a float32 one. Raises as chosen_isa.

    On vector units (AVX512-BF16) they are not: those do two in the time of one at best."""
    return chosen_isa() == "amx"


def check_array(name: str, array: object, dtype: DTypeLike, shape: tuple[int | str, ...]) -> None:
    """Raises SettingsError unless `array` is a C-contiguous array of this dtype and shape.

    A string in `shape` stands for any size.
    """
    expected = f"{name}: expected a C-contiguous {np.dtype(dtype)}[{', '.join(map(str, shape))}] array"
    if not isinstance(array, np.ndarray):
        raise SettingsError(f"{expected}, got {type(array).__name__}")
    fits = array.ndim == len(shape) and all(
        isinstance(want, str) or size == want for size, want in zip(array.shape, shape, strict=True)
    )
    if array.dtype != dtype or not fits:
        raise SettingsError(f"{expected}, got {array.dtype}[{', '.join(map(str, array.shape))}]")
    if not array.flags.c_contiguous:
        raise SettingsError(f"{expected}, got one with gaps; pass np.ascontiguousarray({name})")


def check_targets(target_ids: Int32Array, target_offsets: Int64Array, vocab_size: int) -> None:
    """Raises SettingsError unless the offsets rise from 0 to t and every id is in [0, V)."""
    falls = np.flatnonzero(np.diff(target_offsets) < 0)
    if len(falls) > 0:
        row = int(falls[0])
        raise SettingsError(
            f"target_offsets: expected offsets that never fall, got {target_offsets[row]} "
            f"then {target_offsets[row + 1]} at row {row}"
        )
    if target_offsets[0] != 0 or target_offsets[-1] != len(target_ids):
        raise SettingsError(
            f"target_offsets: expected to run from 0 to the {len(target_ids)} targets, "
            f"got {target_offsets[0]} to {target_offsets[-1]}"
        )
    outside = np.flatnonzero((target_ids < 0) | (target_ids >= vocab_size))
    if len(outside) > 0:
        target = int(outside[0])
        raise SettingsError(
            f"target_ids: expected ids from 0 to {vocab_size - 1}, got {target_ids[target]} "
            f"at target {target}"
        )


def load_core() -> ModuleType:
    """The compiled core, or MissingExtraError that says how to build it."""
    try:
        from mlmfast import _core
    except ImportError as error:
        raise MissingExtraError(
            f"impl 'cpu' needs the compiled core mlmfast._core, which cannot be imported ({error}); "
            "build it with: pip install . (in the source tree), or use impl='reference'"
        ) from error
    return _core


@cache
def log_choice(isa: str) -> None:
    logger.debug("head: impl 'auto' uses 'cpu' (%s)", isa)
