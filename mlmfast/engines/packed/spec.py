"""What an encoder computes, as the compiled core reads it from config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

STUDENT_HEADS = ("token_student", "cls_student")


@dataclass(frozen=True)
class AttentionWindow:
    """Of one layer; see AttentionWindow of csrc/include/mlmfast/model_spec.h."""

    is_local: bool
    half_window: int
    rope_theta: float


@dataclass(frozen=True)
class EncoderSpec:
    """The fields of ModelSpec (csrc/include/mlmfast/model_spec.h says what each means) that the engine reads.

    position: none, absolute or rotary. norm_placement: pre or post. head: vocabulary or a student's.
    """

    vocab_size: int
    embedding_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    type_vocab_size: int
    max_length: int
    position: str
    position_offset: int
    position_skip_id: int
    norm_placement: str
    norm_eps: float
    activation: str
    gated: bool
    attention: tuple[AttentionWindow, ...]
    shared_layers: bool
    embedding_projection: bool
    token_dropout: bool
    mask_token_id: int
    head: str
    head_activation: str

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> EncoderSpec:
        """values: `spec` of _core.read_encoder."""
        chosen = {field.name: values[field.name] for field in fields(cls)}
        chosen["attention"] = tuple(AttentionWindow(**window) for window in values["attention"])
        return cls(**chosen)

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_heads

    @property
    def is_post_norm(self) -> bool:
        return self.norm_placement == "post"

    @property
    def is_student(self) -> bool:
        return self.head in STUDENT_HEADS
