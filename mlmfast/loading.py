"""Opening a model: its files found and checked, nothing of it loaded."""

from __future__ import annotations

import os

from mlmfast.engines.base import ModelFiles
from mlmfast.engines.onnx_folder import graph_files, is_export, read_description
from mlmfast.errors import ModelError
from mlmfast.models import (
    Checkpoint,
    ModelConfig,
    ModelSource,
    check_head,
    read_config,
    resolve,
    with_head_of,
)
from mlmfast.tokenization import load_tokenizer


def open_model(
    model: str | os.PathLike[str] | None = None, *, revision: str | None = None, allow_pickle: bool = False
) -> ModelFiles:
    """A model's files, found and checked but not loaded; as for `load`. Raises ModelError."""
    source = resolve(model, revision=revision, allow_pickle=allow_pickle)
    config = read_config(source.folder)
    if is_export(source.folder):
        return _open_export(source, config)
    checkpoint = Checkpoint.of(source.folder, allow_pickle=allow_pickle)
    config = with_head_of(config, checkpoint.tensors)
    files = ModelFiles(source, config, checkpoint, load_tokenizer(source.folder, config.model_type))
    _check_mask_token(files)
    try:
        check_head(config, checkpoint)
    except ModelError as error:
        raise ModelError(f"{source.folder}: {error}") from error
    return files


def _open_export(source: ModelSource, config: ModelConfig) -> ModelFiles:
    """The folder of an ONNX export, whose weights are in its graph."""
    graph = read_description(source.folder)
    graph.require_fitting(source.folder, config)
    checkpoint = Checkpoint(graph_files(source.folder))
    tokenizer = load_tokenizer(source.folder, config.model_type)
    files = ModelFiles(source, config, checkpoint, tokenizer, graph)
    _check_mask_token(files)
    return files


def _check_mask_token(files: ModelFiles) -> None:
    special, name = files.tokenizer.special, files.source.name
    if files.config.kind == "masked":
        if special.mask_id is None:
            raise ModelError(f"{name}: its tokenizer has no mask token, which a masked model needs")
        if special.mask_id == special.unknown_id:
            raise ModelError(f"{name}: its tokenizer has no mask token of its own: it is the unknown token")
    too_large = len(files.tokenizer.vocabulary) - files.config.vocab_size
    if too_large > 0 and any(files.tokenizer.vocabulary[files.config.vocab_size :]):
        raise ModelError(
            f"{name}: its tokenizer has {len(files.tokenizer.vocabulary)} tokens, its config.json vocab_size "
            f"says {files.config.vocab_size}; the two do not belong together"
        )
