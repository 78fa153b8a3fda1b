"""A model folder's tokenizer: from `tokenizer.json`, or built from the vocabulary files beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers, processors

from mlmfast.errors import ModelError
from mlmfast.extras import require
from mlmfast.tokenization.proteins import is_protein_vocabulary
from mlmfast.tokenization.tokenizer import SpecialTokens, Tokenizer

ROLES = ("mask_token", "unk_token", "bos_token", "eos_token", "pad_token", "cls_token", "sep_token")
ESM_ROLES = {
    "mask_token": "<mask>",
    "unk_token": "<unk>",
    "cls_token": "<cls>",
    "eos_token": "<eos>",
    "pad_token": "<pad>",
}


def load_tokenizer(folder: Path, model_type: str) -> Tokenizer:
    """The tokenizer of a model folder.

    Reads `tokenizer.json`; without it, ESM's `vocab.txt`; without that, converts SentencePiece or older
    vocabulary files with transformers (extras `torch` and `sentencepiece`).
    Raises ModelError if the folder has no tokenizer files or they cannot be read.
    """
    names = _special_token_names(folder)
    path = folder / "tokenizer.json"
    if path.is_file():
        definition = _read_text(path)
    elif model_type == "esm" and (folder / "vocab.txt").is_file():
        definition = _esm_definition(_read_text(folder / "vocab.txt").split("\n"))
        names = {**ESM_ROLES, **names}
    else:
        definition, converted = _converted_definition(folder)
        names = {**converted, **names}
    try:
        backend = tokenizers.Tokenizer.from_str(definition)
    except Exception as error:  # the Rust parser raises bare Exception
        raise ModelError(f"{path}: not a readable tokenizer file ({error})") from error
    special = _special_tokens(backend, names, json.loads(definition))
    tokenizer = Tokenizer(definition, special)
    tokenizer.protein = is_protein_vocabulary(tokenizer.vocabulary, special)
    return tokenizer


def _special_token_names(folder: Path) -> dict[str, str]:
    """Role -> token, from special_tokens_map.json and tokenizer_config.json (which wins)."""
    names: dict[str, str] = {}
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        for role, value in _read_json(folder / file).items():
            if role in ROLES:
                content = value.get("content") if isinstance(value, dict) else value
                if isinstance(content, str):
                    names[role] = content
    return names


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: not a readable tokenizer file, not valid UTF-8 ({error})") from error


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(tree, dict):
        raise ModelError(f"{path}: expected a JSON object, found {type(tree).__name__}")
    return tree


def _special_tokens(
    backend: tokenizers.Tokenizer, names: dict[str, str], tree: dict[str, Any]
) -> SpecialTokens:
    ids = {role: backend.token_to_id(token) for role, token in names.items()}
    # Files without roles (a bare tokenizer.json): the customary spellings.
    for role, spellings in {
        "mask_token": ("[MASK]", "<mask>"),
        "unk_token": ("[UNK]", "<unk>"),
        "pad_token": ("[PAD]", "<pad>"),
    }.items():
        for token in spellings:
            if ids.get(role) is None and role not in names:
                ids[role] = backend.token_to_id(token)
    added = {t["id"] for t in tree.get("added_tokens") or [] if t.get("special")}
    known = {i for role, i in ids.items() if i is not None and role != "unk_token"}
    all_ids = added | known
    if ids.get("unk_token") not in known:
        all_ids -= {ids.get("unk_token")}
    return SpecialTokens(
        mask_id=ids.get("mask_token"),
        unknown_id=ids.get("unk_token"),
        bos_id=ids.get("bos_token"),
        eos_id=ids.get("eos_token"),
        pad_id=ids.get("pad_token"),
        all_ids=frozenset(all_ids),
    )


def _esm_definition(lines: list[str]) -> str:
    """ESM's tokenizer: one letter is one token, `<cls>` before and `<eos>` after, white space skipped."""
    tokens = [line.strip() for line in lines if line.strip()]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    missing = sorted(set(ESM_ROLES.values()) - set(vocabulary))
    if missing:
        raise ModelError(f"vocab.txt: an ESM vocabulary has {', '.join(missing)}, this one does not")
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(tokenizers.Regex("."), "isolated")]
    )
    backend.post_processor = processors.TemplateProcessing(
        single="<cls> $A <eos>",
        pair="<cls> $A <eos> $B <eos>",
        special_tokens=[(t, vocabulary[t]) for t in ("<cls>", "<eos>")],
    )
    backend.add_special_tokens(list(ESM_ROLES.values()))
    return str(backend.to_str())


def _converted_definition(folder: Path) -> tuple[str, dict[str, str]]:
    if not any(p.suffix in (".model", ".txt") or p.name == "vocab.json" for p in folder.iterdir()):
        raise ModelError(
            f"{folder}: no tokenizer here; expected tokenizer.json, vocab.txt, vocab.json with merges.txt, "
            "or a SentencePiece .model file"
        )
    transformers = require("transformers", extra="torch", purpose=f"reading the tokenizer files of {folder}")
    try:
        slow = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        backend = slow.backend_tokenizer
    except Exception as error:
        raise ModelError(
            f"{folder}: its tokenizer files could not be converted ({error}); "
            "SentencePiece files need: pip install 'mlmfast[sentencepiece]'"
        ) from error
    names = {role: str(getattr(slow, role)) for role in ROLES if getattr(slow, role, None) is not None}
    return str(backend.to_str()), names
