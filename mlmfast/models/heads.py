"""The language-model heads of the known families: their layout, and the check that a checkpoint has one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlmfast.errors import ModelError
from mlmfast.models.checkpoint import Checkpoint
from mlmfast.models.config import ModelConfig

GELU = "gelu"
WEIGHT, BIAS = "student.weight", "student.bias"
"""Of a student's head: value = weight [1, hidden_size] . final hidden state + bias [1]."""
FLOATS = ("F32", "F16", "BF16")
CAUSAL_TYPES = ("gpt2", "llama")


@dataclass(frozen=True)
class HeadLayout:
    """A head as transform, then hidden @ weight.T + bias.

    transform: modules applied in order, `gelu` for the bare function; decoder: the product's weight;
    tied_to: the embedding that stands in where the decoder is left out; biases: the names the output
    bias is published under, of which at least one must be there; () for a head without bias.
    """

    transform: tuple[str, ...]
    decoder: str
    tied_to: str
    biases: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


def _roberta(prefix: str) -> HeadLayout:
    return HeadLayout(
        ("lm_head.dense", GELU, "lm_head.layer_norm"),
        "lm_head.decoder.weight",
        f"{prefix}.embeddings.word_embeddings.weight",
        ("lm_head.bias", "lm_head.decoder.bias"),
        (
            "lm_head.dense.weight",
            "lm_head.dense.bias",
            "lm_head.layer_norm.weight",
            "lm_head.layer_norm.bias",
        ),
    )


def _bert(prefix: str) -> HeadLayout:
    transform = "cls.predictions.transform"
    return HeadLayout(
        (transform,),
        "cls.predictions.decoder.weight",
        f"{prefix}.embeddings.word_embeddings.weight",
        ("cls.predictions.bias", "cls.predictions.decoder.bias"),
        (
            f"{transform}.dense.weight",
            f"{transform}.dense.bias",
            f"{transform}.LayerNorm.weight",
            f"{transform}.LayerNorm.bias",
        ),
    )


HEADS = {
    "bert": _bert("bert"),
    "roberta": _roberta("roberta"),
    "xlm-roberta": _roberta("roberta"),
    "camembert": _roberta("roberta"),
    "mpnet": _roberta("mpnet"),
    "distilbert": HeadLayout(
        ("vocab_transform", "activation", "vocab_layer_norm"),
        "vocab_projector.weight",
        "distilbert.embeddings.word_embeddings.weight",
        ("vocab_projector.bias",),
        (
            "vocab_transform.weight",
            "vocab_transform.bias",
            "vocab_layer_norm.weight",
            "vocab_layer_norm.bias",
        ),
    ),
    "albert": HeadLayout(
        ("predictions.dense", "predictions.activation", "predictions.LayerNorm"),
        "predictions.decoder.weight",
        "albert.embeddings.word_embeddings.weight",
        ("predictions.bias", "predictions.decoder.bias"),
        (
            "predictions.dense.weight",
            "predictions.dense.bias",
            "predictions.LayerNorm.weight",
            "predictions.LayerNorm.bias",
        ),
    ),
    "electra": HeadLayout(
        ("generator_predictions",),
        "generator_lm_head.weight",
        "electra.embeddings.word_embeddings.weight",
        ("generator_lm_head.bias",),
        ("generator_predictions.dense.weight", "generator_predictions.LayerNorm.weight"),
    ),
    "deberta-v2": HeadLayout(
        ("lm_predictions.lm_head.dense", GELU, "lm_predictions.lm_head.LayerNorm"),
        "deberta.embeddings.word_embeddings.weight",
        "deberta.embeddings.word_embeddings.weight",
        ("lm_predictions.lm_head.bias",),
        ("lm_predictions.lm_head.dense.weight", "lm_predictions.lm_head.LayerNorm.weight"),
    ),
    "deberta-v2-legacy": _bert("deberta"),
    "modernbert": HeadLayout(
        ("head",),
        "decoder.weight",
        "model.embeddings.tok_embeddings.weight",
        ("decoder.bias",),
        ("head.dense.weight", "head.norm.weight"),
    ),
    "esm": HeadLayout(
        ("lm_head.dense", GELU, "lm_head.layer_norm"),
        "lm_head.decoder.weight",
        "esm.embeddings.word_embeddings.weight",
        ("lm_head.bias",),
        ("lm_head.dense.weight", "lm_head.layer_norm.weight"),
    ),
    "gpt2": HeadLayout((), "lm_head.weight", "transformer.wte.weight"),
    "llama": HeadLayout((), "lm_head.weight", "model.embed_tokens.weight"),
}
"""By model type. Heads not listed run as the model's own code."""

UNSUPPORTED_FIELDS = (
    "final_logit_softcapping",
    "attn_logit_softcapping",
    "logit_scale",
    "logits_scaling",
    "logits_soft_cap",
    "sliding_window",
    "quantization_config",
)
"""Configuration fields that change what a listed family computes and that its layout does not carry out."""


def head_layout(config: ModelConfig) -> HeadLayout | None:
    """The layout of a configuration's head, None if its family is not listed."""
    if config.model_type == "deberta-v2" and config.values.get("legacy", True):
        return HEADS["deberta-v2-legacy"]
    return HEADS.get(config.model_type)


def check_head(config: ModelConfig, checkpoint: Checkpoint) -> None:
    """Refuse, by name, a checkpoint of a listed family, or a student's, whose head is not all there.

    Knows `gamma`/`beta` for norms, an output bias stored once or twice, and a decoder left out because
    it is tied to the embeddings. Raises ModelError.
    """
    layout = head_layout(config)
    if layout is not None:
        _check_fields(config)
    if config.kind == "student":
        _check_student_head(config, layout, checkpoint)
    elif layout is not None and not checkpoint.is_pickle:
        _check_vocabulary_head(config, layout, checkpoint)


def _check_fields(config: ModelConfig) -> None:
    fields = [f for f in UNSUPPORTED_FIELDS if config.values.get(f) not in (None, False)]
    if fields:
        raise ModelError(
            f"config.json sets {fields[0]} = {config.values[fields[0]]!r}, which is not carried out for "
            f"model type {config.model_type!r}; scores would be wrong"
        )
    positions = config.values.get("position_embedding_type", "absolute")
    if positions not in ("absolute", "rotary"):
        raise ModelError(
            f"config.json sets position_embedding_type = {positions!r}, which is not carried out; "
            "scores would be wrong"
        )


def _check_student_head(config: ModelConfig, layout: HeadLayout | None, checkpoint: Checkpoint) -> None:
    if config.model_type in CAUSAL_TYPES:
        raise ModelError(
            f"a student of model type {config.model_type!r}, which does not see the whole text; expected an "
            "encoder"
        )
    if checkpoint.is_pickle:
        raise ModelError("a student's weights are pickled; expected safetensors")
    hidden_size = config.values.get("hidden_size", config.values.get("dim"))
    for name, shape in ((WEIGHT, (1, hidden_size)), (BIAS, (1,))):
        entry = checkpoint.tensors.get(name)
        if entry is None:
            raise ModelError(f"the checkpoint of a student has no {name}; expected it in shape {list(shape)}")
        if entry.shape != shape or entry.dtype not in FLOATS:
            raise ModelError(
                f"{name} is {entry.dtype} {list(entry.shape)}; expected {list(shape)} in F32, F16 or BF16"
            )
    surplus = set() if layout is None else {*layout.required, *layout.biases} & checkpoint.tensors.keys()
    if surplus:
        raise ModelError(
            f"the checkpoint of a student also has a vocabulary head ({min(surplus)}); which one its scores "
            "need cannot be known"
        )


def _check_vocabulary_head(config: ModelConfig, layout: HeadLayout, checkpoint: Checkpoint) -> None:
    names = {modern_name(name) for name in checkpoint.tensors}
    missing = [name for name in layout.required if name not in names]
    if layout.biases and _has_bias(config) and not names.intersection(layout.biases):
        missing.append(layout.biases[0])
    if layout.decoder not in names and not _tied(config, layout, names):
        missing.append(layout.decoder)
    if missing:
        wrong = f"; its architecture is {config.architecture}" if config.architecture else ""
        raise ModelError(
            f"the checkpoint has no complete {config.kind} language-model head: {', '.join(missing)} "
            f"not among its {len(names)} tensors{wrong}. Scoring needs the weights published for "
            "pre-training or fill-mask"
        )
    _check_one_bias(layout, checkpoint)


def modern_name(name: str) -> str:
    """TensorFlow-era norm names as they are called now."""
    if name.endswith("LayerNorm.gamma"):
        return name[: -len("gamma")] + "weight"
    if name.endswith("LayerNorm.beta"):
        return name[: -len("beta")] + "bias"
    return name


def _has_bias(config: ModelConfig) -> bool:
    return config.model_type != "modernbert" or bool(config.values.get("decoder_bias", True))


def _tied(config: ModelConfig, layout: HeadLayout, names: set[str]) -> bool:
    default = config.model_type != "llama"
    # Published without the encoder's prefix, as GPT-2 is, the embedding is still the same tensor.
    there = any(layout.tied_to == name or layout.tied_to.endswith(f".{name}") for name in names)
    return there and bool(config.values.get("tie_word_embeddings", default))


def _check_one_bias(layout: HeadLayout, checkpoint: Checkpoint) -> None:
    stored = [name for name in layout.biases if name in checkpoint.tensors]
    if len(stored) == 2:
        first, second = (checkpoint.tensors[name] for name in stored)
        if (first.dtype, first.shape) != (second.dtype, second.shape) or not np.array_equal(
            first.raw(), second.raw()
        ):
            raise ModelError(
                f"the checkpoint stores its output bias twice, as {stored[0]} and {stored[1]}, and the two "
                "differ; which one its scores need cannot be known"
            )
