"""The compiled core: built from csrc/, raw checks only; use it through mlmfast.kernels."""

from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from mlmfast.types import Float32Array, Int32Array, Int64Array

class HeadResults(TypedDict):
    log_prob: Float32Array
    logit: Float32Array | None
    logits: Float32Array | None  # [targets, vocabulary]
    rank: Int32Array | None
    entropy: Float32Array | None
    subset_log_prob: Float32Array | None
    top_ids: Int32Array | None
    top_log_probs: Float32Array | None

class LinearScores(HeadResults):
    scores: Float32Array  # [rules, targets]
    lse: NDArray[np.float64] | None

Factor = Float32Array | NDArray[np.uint16]

def cpu_features() -> list[str]:
    """CPU features the operating system has enabled, by their usual names."""

def available_isas() -> list[str]:
    """Instruction sets this build and this CPU can run, slowest first."""

def isa() -> str:
    """The instruction set MLMFAST_ISA names, else the fastest; ValueError if it cannot run."""

class ModelError(Exception):
    """A model that cannot be read, run or trusted."""

class UnsupportedModelError(ModelError):
    """A model that may be sound, but whose configuration this engine cannot carry out."""

class EncoderFile(TypedDict):
    spec: dict[str, Any]
    tensors: dict[str, list[tuple[NDArray[Any], str] | None]]

def read_encoder(folder: str) -> EncoderFile:
    """What a model folder's encoder and head compute, and copies of their weights, for engines that compute
    elsewhere. ModelError.

    spec: the fields of ModelSpec (csrc/include/mlmfast/model_spec.h), an enumerator by its name, attention a
    list over layers of is_local, half_window and rope_theta. tensors: by the name of a Role (weights.h, which
    says its shape), a list over layers (one entry for a role not of a layer, and for layers that are shared)
    of an array and the name of its dtype; None for a layer that has none (a first layer's attention norm).
    float32 and float16 as they are stored, bfloat16 as uint16; vectors [size]. Roles the model does not have
    are left out; a tied decoder is the same array as the embeddings.
    """

class Model:
    """A model folder loaded for the native engine; ModelError, or ValueError for a precision or ISA.

    score takes a mlmfast.types.RowBatch's columns; ValueError for ones that do not fit.
    """

    def __init__(self, folder: str, precision: str, isa: str = "") -> None: ...
    def score(
        self,
        input_ids: Int32Array,
        text_offsets: Int64Array,
        token_type_ids: Int32Array | None,
        row_text: Int32Array,
        mask_positions: Int32Array,
        mask_offsets: Int64Array,
        target_positions: Int32Array,
        target_ids: Int32Array,
        target_offsets: Int64Array,
        mask_token_id: int,
        *,
        logit: bool = False,
        logits: bool = False,
        rank: bool = False,
        entropy: bool = False,
        top_k: int = 0,
    ) -> HeadResults: ...
    @property
    def max_length(self) -> int: ...

class Head:
    """A packed weight [V, H]; ValueError or TypeError for arrays that do not fit."""

    def __init__(
        self,
        weight: Float32Array,
        bias: Float32Array | None,
        subset: NDArray[np.uint8] | None,
        isa: str = "",
    ) -> None: ...
    def score(
        self,
        hidden: Float32Array,
        target_ids: Int32Array,
        target_offsets: Int64Array,
        *,
        logit: bool = False,
        logits: bool = False,
        rank: bool = False,
        entropy: bool = False,
        subset_log_prob: bool = False,
        top_k: int = 0,
    ) -> HeadResults: ...
    @property
    def isa(self) -> str: ...

class ScoringRule:
    """log, brier or spherical (ValueError for another name) with its smoothing."""

    def __init__(self, name: str, smoothing: float, masked_log: bool) -> None: ...

def linear_scoring_rule_forward(
    input: Factor,
    weight: Factor,
    bias: Float32Array | None,
    targets: Int64Array,
    rule: ScoringRule,
    precision: str,
    isa: str,
    num_threads: int,
    losses: Float32Array,
    coefficients: Float32Array,
) -> None:
    """Fills losses [N] and coefficients [N, 7]; a negative target is ignored; bfloat16 factors as uint16."""

def linear_scoring_rule_backward(
    input: Factor,
    weight: Factor,
    bias: Float32Array | None,
    targets: Int64Array,
    rule: ScoringRule,
    precision: str,
    isa: str,
    num_threads: int,
    coefficients: Float32Array,
    upstream: Float32Array,
    input_gradient: Factor | None,
    weight_gradient: Factor | None,
    bias_gradient: Float32Array | None,
) -> None:
    """Fills the gradients that are given, of upstream [N] by the losses."""

def linear_score(
    input: Float32Array,
    weight: Factor,
    bias: Float32Array | None,
    target_ids: Int32Array,
    target_offsets: Int64Array,
    rules: list[str],
    precision: str,
    isa: str,
    num_threads: int,
    *,
    lse: bool = False,
    rank: bool = False,
    entropy: bool = False,
    top_k: int = 0,
) -> LinearScores:
    """Scores of a weight used once; ValueError for what does not fit."""
