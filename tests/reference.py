"""The plain way to score a text: Hugging Face in float64, one masked row at a time, no batch, no padding.

What mlmfast must agree with, so nothing here imports it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

HIDDEN = "\0hidden"


@cache
def load_model(folder: str | Path, *, causal: bool = False) -> Any:
    """The folder's masked (or causal) LM in float64 with eager attention.

    Raises ValueError if the checkpoint lacks a tensor the model needs: it would be random.
    """
    auto_class: Any = AutoModelForCausalLM if causal else AutoModelForMaskedLM
    model, loading = auto_class.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
    )
    if loading["missing_keys"] or loading["mismatched_keys"]:
        raise ValueError(
            f"{folder}: tensors missing {sorted(loading['missing_keys'])}, "
            f"of another shape {sorted(loading['mismatched_keys'])}"
        )
    return model.double().eval()


@cache
def load_tokenizer(folder: str | Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


@cache
def load_plain_tokenizer(folder: str | Path) -> Tokenizer:
    """The folder's tokenizer.json, with special tokens typed in a text read as plain text.

    `encode_special_tokens` is enough but for Unigram, whose search also finds them among its pieces: there
    they get a name that no text holds. Templates know special tokens by id and still add them.
    """
    definition = json.loads((Path(folder) / "tokenizer.json").read_text(encoding="utf-8"))
    special_ids = {token["id"] for token in definition["added_tokens"] if token["special"]}
    if definition["model"]["type"] == "Unigram":
        pieces = definition["model"]["vocab"]
        for index in special_ids:
            pieces[index][0] = f"{HIDDEN}{index}"
        definition["added_tokens"] = [t for t in definition["added_tokens"] if not t["special"]]
    tokenizer = Tokenizer.from_str(json.dumps(definition))
    tokenizer.encode_special_tokens = True
    return tokenizer


def reference_tokenize(folder: str | Path, text: str) -> tuple[list[int], list[int | None]]:
    """(input_ids, word_ids) with the special tokens the tokenizer adds; word_ids are None there.

    A folder without tokenizer.json holds a protein model: one letter is one token and one word.
    """
    if (Path(folder) / "tokenizer.json").is_file():
        encoding = load_plain_tokenizer(folder).encode(text)
        return encoding.ids, encoding.word_ids
    tokenizer = load_tokenizer(folder)
    letters = [letter for letter in text if not letter.isspace()]
    ids = [tokenizer.convert_tokens_to_ids(letter) for letter in letters]
    return [tokenizer.cls_token_id, *ids, tokenizer.eos_token_id], [None, *range(len(letters)), None]


def reference_log_probs(
    folder: str | Path,
    input_ids: Sequence[int],
    word_ids: Sequence[int | None],
    masking: str,
    score_eos: bool = False,
) -> list[float]:
    """log p of each token of one text in nats, NaN where it is not scored.

    masking: `original` (Salazar et al. 2020, section 2), `word_l2r` (Kauf & Ivanova 2023),
    `whole_word`, `stride:K`, `none`, or `causal`. Tokens without a word are not scored, but for the last
    one under score_eos; nor is the first token under `causal`.
    """
    scored = [i for i, word in enumerate(word_ids) if word is not None]
    if score_eos and len(word_ids) > 1 and word_ids[-1] is None:
        scored.append(len(word_ids) - 1)
    log_probs = [math.nan] * len(input_ids)
    if masking == "causal":
        table = forward(load_model(folder, causal=True), input_ids)
        for i in scored:
            if i > 0:
                log_probs[i] = float(table[i - 1, input_ids[i]])
        return log_probs

    rows: dict[tuple[int, ...], list[int]] = {}
    for i in scored:
        rows.setdefault(mask_positions(i, scored, word_ids, masking), []).append(i)
    model = load_model(folder)
    mask_id = load_tokenizer(folder).mask_token_id
    for masks, targets in rows.items():
        table = forward(model, [mask_id if i in masks else token for i, token in enumerate(input_ids)])
        for i in targets:
            log_probs[i] = float(table[i, input_ids[i]])
    return log_probs


def mask_positions(
    target: int, scored: Sequence[int], word_ids: Sequence[int | None], masking: str
) -> tuple[int, ...]:
    """The positions that are masked in the row that scores `target`."""
    word = [i for i in scored if i == target or (word_ids[i] is not None and word_ids[i] == word_ids[target])]
    if masking == "none":
        return ()
    if masking == "original":
        return (target,)
    if masking == "word_l2r":
        return tuple(i for i in word if i >= target)
    if masking == "whole_word":
        return tuple(word)
    if masking.startswith("stride:"):
        stride = int(masking.removeprefix("stride:"))
        return tuple(scored[scored.index(target) % stride :: stride])
    raise ValueError(f"unknown masking {masking!r}")


@torch.no_grad()
def forward(model: Any, input_ids: Sequence[int]) -> torch.Tensor:
    """log p float64 [tokens, vocabulary] of one row."""
    ids = torch.tensor([list(input_ids)])
    logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0]
    return torch.log_softmax(logits.double(), dim=-1)
