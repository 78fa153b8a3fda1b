"""BERT models of any size with random weights, which cost as much to run as trained ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from transformers import BertConfig, BertForMaskedLM

from mlmfast.models import resolve

SPREAD = 0.05
"""Standard deviation of the weights: outputs then differ enough between tokens to show a wrong one."""


def save_random_model(
    folder: Path, *, vocab_size: int, num_layers: int = 6, hidden_size: int = 384, num_heads: int = 12
) -> Path:
    """A BERT masked LM with seeded random float16 weights, and the embedded model's tokenizer.

    The vocabulary is cut or filled up with unused tokens to vocab_size, so that texts keep their tokens as
    far as they are in it.
    """
    source = resolve(None).folder
    folder.mkdir(parents=True)
    definition = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = definition["model"]["vocab"]
    kept = {token: index for token, index in vocabulary.items() if index < vocab_size}
    unused = {f"[unused{index}]": index for index in range(len(vocabulary), vocab_size)}
    definition["model"]["vocab"] = kept | unused
    (folder / "tokenizer.json").write_text(json.dumps(definition), encoding="utf-8")
    shutil.copy(source / "tokenizer_config.json", folder)
    config = BertConfig(
        vocab_size=vocab_size,
        num_hidden_layers=num_layers,
        hidden_size=hidden_size,
        num_attention_heads=num_heads,
        intermediate_size=4 * hidden_size,
        initializer_range=SPREAD,
    )
    torch.manual_seed(0)
    BertForMaskedLM(config).half().save_pretrained(folder)
    return folder
