"""Loading a Hugging Face model so that nothing in it is random, renamed or silently left out."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from typing import Any

import transformers

from mlmfast.engines.base import ModelFiles
from mlmfast.errors import ModelError, UnsupportedModelError

UNUSED = ("pooler.", "position_ids", "seq_relationship")
"""Parts of a checkpoint or model that no language-model score depends on."""

BUFFERS = ("inv_freq", ".attn.bias", "masked_bias")
"""Constants that older checkpoints store."""
LAYER = re.compile(r"(^|\.)(layers?|h|blocks?)\.\d+\.")


def require_weights(files: ModelFiles) -> None:
    """Raises UnsupportedModelError for an ONNX export, whose weights are in its graph."""
    if files.graph is not None:
        raise UnsupportedModelError(
            f"{files.source.name} is an ONNX export, which only scores; name the model that it was made of"
        )


def load_model(files: ModelFiles) -> Any:
    """The model with its head, float32, in evaluation mode. Raises ModelError."""
    require_weights(files)
    config, folder = files.config, files.source.folder
    causal = config.kind == "causal"
    auto: Any = transformers.AutoModelForCausalLM if causal else transformers.AutoModelForMaskedLM
    try:
        with quiet_transformers():
            settings = transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True)
            if "legacy" in config.values:
                settings.legacy = config.values["legacy"]
            model, report = auto.from_pretrained(
                str(folder),
                config=settings,
                output_loading_info=True,
                local_files_only=True,
                use_safetensors=not files.checkpoint.is_pickle,
                trust_remote_code=False,
                dtype="float32",
            )
    except Exception as error:  # transformers raises OSError, ValueError, RuntimeError and others
        raise ModelError(
            f"{folder}: model type {config.model_type!r} cannot be loaded as a {config.kind} language model "
            f"({type(error).__name__}: {str(error).strip().splitlines()[0]})"
        ) from error
    missing = sorted(k for k in report["missing_keys"] if not any(part in k for part in UNUSED))
    mismatched = sorted(str(m[0] if isinstance(m, tuple) else m) for m in report["mismatched_keys"])
    surplus = sorted(k for k in report["unexpected_keys"] if _matters(k, model.base_model_prefix))
    if surplus:
        raise ModelError(
            f"{folder}: the checkpoint holds tensors that {type(model).__name__} as configured does not "
            f"have: {some_of(surplus)}; the two do not belong together"
        )
    if missing or mismatched:
        raise ModelError(
            f"{folder}: the checkpoint does not fill {type(model).__name__}: "
            f"missing {some_of(missing)}, of another shape {some_of(mismatched)}. transformers would draw "
            "them at random and the scores would mean nothing; give the weights published for fill-mask"
        )
    return model.eval().requires_grad_(False)


def _matters(name: str, prefix: str) -> bool:
    """Whether a tensor that found no place belongs to an encoder."""
    if any(part in name for part in (*UNUSED, *BUFFERS)):
        return False
    return name.startswith(f"{prefix}.") or LAYER.search(name) is not None


def some_of(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "") or "none"


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """No reports and bars of its own on the terminal; what is wrong goes to our own errors."""
    logging_module: Any = transformers.utils.logging
    level, bars = logging_module.get_verbosity(), logging_module.is_progress_bar_enabled()
    logging_module.set_verbosity(logging.CRITICAL)
    logging_module.disable_progress_bar()
    try:
        yield
    finally:
        logging_module.set_verbosity(level)
        if bars:
            logging_module.enable_progress_bar()
