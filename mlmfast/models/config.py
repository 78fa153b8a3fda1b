"""What `config.json` says of a model, checked."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlmfast.errors import ModelError

PAD_OFFSET_TYPES = frozenset(
    {
        "roberta",
        "xlm-roberta",
        "xlm-roberta-xl",
        "camembert",
        "data2vec-text",
        "roberta-prelayernorm",
        "mpnet",
        "esm",
    }
)
"""Model types whose first position is pad_token_id + 1: the table of positions holds that many more."""

DEFAULT_PAD_ID = 1
"""What those model types take where config.json leaves pad_token_id out."""

CAUSAL_ARCHITECTURES = ("ForCausalLM", "LMHeadModel")
STUDENT_ARCHITECTURE = "MlmfastStudent"
STUDENT_HEADS = ("token", "cls")


@dataclass(frozen=True)
class ModelConfig:
    """A model's configuration.

    kind: `masked`, `causal` or `student`; max_length: tokens the model takes, special tokens included;
    values: the whole of config.json; student_head: what a student predicts, the pseudo-log-likelihood's
    term of each `token`, or from the first token (`cls`) that of the text (RescoreBERT, Xu et al. 2022).
    """

    model_type: str
    architecture: str
    kind: str
    max_length: int
    vocab_size: int
    values: Mapping[str, Any]
    student_head: str | None = None


def read_config(folder: Path) -> ModelConfig:
    """Raises ModelError if there is no readable configuration of a language model."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(
            f"{folder}: no config.json; expected a model's folder with config.json, weights, tokenizer"
        )
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(values, dict) or not isinstance(values.get("model_type"), str):
        raise ModelError(f"{path}: expected an object with a model_type")
    for key in ("vocab_size",):
        if not isinstance(values.get(key), int):
            raise ModelError(f"{path}: {key} is {values.get(key)!r}; expected a whole number")
    architectures = values.get("architectures") or [""]
    architecture = architectures[0] if isinstance(architectures, list) else architectures
    if not isinstance(architecture, str):
        raise ModelError(f"{path}: architectures is {architectures!r}; expected a list of names")
    kind = _kind(values, architecture)
    return ModelConfig(
        model_type=values["model_type"],
        architecture=architecture,
        kind=kind,
        max_length=_max_length(folder, values),
        vocab_size=values["vocab_size"],
        values=values,
        student_head=_student_head(path, values) if kind == "student" else None,
    )


def with_head_of(config: ModelConfig, tensor_names: Collection[str]) -> ModelConfig:
    """The configuration made to name the head its checkpoint holds.

    DeBERTa-v2 has two, told apart by `legacy`, which published configurations leave out.
    """
    if config.model_type == "deberta-v2" and any(n.startswith("lm_predictions.") for n in tensor_names):
        return replace(config, values={**config.values, "legacy": False})
    return config


def _kind(values: Mapping[str, Any], architecture: str) -> str:
    if architecture == STUDENT_ARCHITECTURE:
        return "student"
    if architecture.endswith("ForMaskedLM"):
        return "causal" if values.get("is_decoder") else "masked"
    if architecture.endswith(CAUSAL_ARCHITECTURES) or values.get("is_decoder"):
        return "causal"
    return "masked"


def _student_head(path: Path, values: Mapping[str, Any]) -> str:
    stated = values.get("mlmfast_student")
    head = stated.get("head") if isinstance(stated, dict) else None
    if head not in STUDENT_HEADS:
        raise ModelError(
            f"{path}: a student's mlmfast_student.head is {head!r}; expected {' or '.join(STUDENT_HEADS)}"
        )
    if values.get("is_decoder"):
        raise ModelError(f"{path}: is_decoder is set; a student reads the whole text, leave it out")
    return str(head)


def _max_length(folder: Path, values: Mapping[str, Any]) -> int:
    positions = values.get("max_position_embeddings", values.get("n_positions"))
    limit = positions if isinstance(positions, int) and positions > 0 else _UNLIMITED
    if values["model_type"] in PAD_OFFSET_TYPES and limit < _UNLIMITED:
        pad = values.get("pad_token_id")
        limit -= (pad if isinstance(pad, int) else DEFAULT_PAD_ID) + 1
    tokenizer_file = folder / "tokenizer_config.json"
    if tokenizer_file.is_file():
        try:
            stated = json.loads(tokenizer_file.read_text(encoding="utf-8")).get("model_max_length")
        except (ValueError, AttributeError) as error:
            raise ModelError(f"{tokenizer_file}: not a valid JSON object ({error})") from error
        if isinstance(stated, int | float) and 0 < stated < _UNLIMITED:
            limit = min(limit, int(stated))
    return limit


_UNLIMITED = 1 << 30
