"""The files beside a graph: configuration and tokenizer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from mlmfast.engines.base import ModelFiles
from mlmfast.errors import ModelError
from mlmfast.tokenization import Tokenizer, load_tokenizer

COPIED = ("config.json", "tokenizer_config.json", "special_tokens_map.json", "LICENSE")


def copy_model_files(files: ModelFiles, folder: Path) -> None:
    """Writes config.json and the tokenizer, always as a tokenizer.json, which needs no conversion.

    Raises ModelError if the tokenizer then reads differently, OSError.
    """
    for name in COPIED:
        if (files.source.folder / name).is_file():
            shutil.copyfile(files.source.folder / name, folder / name)
    tokenizer = files.tokenizer
    (folder / "tokenizer.json").write_text(tokenizer.definition, encoding="utf-8")
    if not (files.source.folder / "tokenizer.json").is_file():
        _name_special_tokens(tokenizer, folder / "special_tokens_map.json")
    written = load_tokenizer(folder, files.config.model_type)
    if (written.special, written.vocabulary, written.protein) != (
        tokenizer.special,
        tokenizer.vocabulary,
        tokenizer.protein,
    ):
        raise ModelError(f"{files.source.name}: its tokenizer cannot be written as a tokenizer.json")


def _name_special_tokens(tokenizer: Tokenizer, path: Path) -> None:
    """Adds to a special_tokens_map.json what is known of a tokenizer that other files defined."""
    special = tokenizer.special
    ids = {
        "mask_token": special.mask_id,
        "unk_token": special.unknown_id,
        "bos_token": special.bos_id,
        "eos_token": special.eos_id,
        "pad_token": special.pad_id,
    }
    known = {role: tokenizer.vocabulary[index] for role, index in ids.items() if index is not None}
    stored = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    path.write_text(json.dumps({**known, **stored}, ensure_ascii=False, indent=2), encoding="utf-8")
