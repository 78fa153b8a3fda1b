"""Texts sampled from masked language models (Wang & Cho 2019, and what came after)."""

from mlmfast.generation.alphabet import allowed_tokens
from mlmfast.generation.output import text_of
from mlmfast.generation.run import generate
from mlmfast.generation.settings import SAMPLERS, GenerationSettings
from mlmfast.generation.start_settings import StartSettings
from mlmfast.generation.starts import StartMaker, starts
from mlmfast.generation.state import ChainState, StartState

__all__ = [
    "SAMPLERS",
    "ChainState",
    "GenerationSettings",
    "StartMaker",
    "StartSettings",
    "StartState",
    "allowed_tokens",
    "generate",
    "starts",
    "text_of",
]
