"""Models as files: where they are, what their configuration says, whether their head is really there."""

from mlmfast.models.checkpoint import Checkpoint
from mlmfast.models.config import ModelConfig, read_config, with_head_of
from mlmfast.models.heads import GELU, HeadLayout, check_head, head_layout
from mlmfast.models.source import EMBEDDED_MODEL, EMBEDDED_STUDENT, ModelSource, embedded_for, resolve

__all__ = [
    "EMBEDDED_MODEL",
    "EMBEDDED_STUDENT",
    "GELU",
    "Checkpoint",
    "HeadLayout",
    "ModelConfig",
    "ModelSource",
    "check_head",
    "embedded_for",
    "head_layout",
    "read_config",
    "resolve",
    "with_head_of",
]
