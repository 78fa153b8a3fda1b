"""Hugging Face with the hidden states gathered at the targets before the head: eager, compiled, bfloat16."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from typing import Any

import torch
from contestant_batches import Batch, Score, gathered_scorer
from numpy.typing import NDArray
from torch import nn
from transformers import AutoModelForMaskedLM

MAX_BATCH_TOKENS = 2048


def lm_head(model: Any) -> nn.Module:
    """BERT's or RoBERTa's: hidden states [..., hidden_size] to logits [..., V]."""
    head: nn.Module = model.cls if hasattr(model, "cls") else model.lm_head
    return head


class GatheredLogProbs(nn.Module):
    """A BERT- or RoBERTa-like masked LM with its head, and a float32 log-softmax, at targets only."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.encoder = model.base_model
        self.head = lm_head(model)

    def forward(
        self, input_ids: torch.Tensor, positions: torch.Tensor, target_ids: torch.Tensor
    ) -> torch.Tensor:
        """input_ids [b, length], positions [b], target_ids [b] to log-probabilities [b]."""
        hidden = self.encoder(input_ids=input_ids).last_hidden_state  # [b, length, hidden_size]
        rows = torch.arange(hidden.shape[0], device=hidden.device)
        logits: torch.Tensor = self.head(hidden[rows, positions])  # [b, V]
        return logits.float().log_softmax(dim=-1)[rows, target_ids]


def load_gathered(folder: str, dtype: torch.dtype = torch.float32) -> GatheredLogProbs:
    torch.set_num_threads(1)
    module = GatheredLogProbs(AutoModelForMaskedLM.from_pretrained(folder, dtype=dtype))
    module.eval()
    return module


def load(options: argparse.Namespace) -> Score:
    """options.precision: float32, bfloat16 (the whole model cast) or autocast (to bfloat16)."""
    cast = options.precision == "bfloat16"
    model: Any = load_gathered(options.folder, torch.bfloat16 if cast else torch.float32)
    if options.compile:
        # Weights become constants that inductor packs for oneDNN: its own advice for inference on a CPU.
        torch._inductor.config.freezing = True
        model = torch.compile(model, dynamic=True)
    autocast = options.precision == "autocast"

    def forward(batch: Batch) -> NDArray[Any]:
        inputs = (torch.from_numpy(x) for x in (batch.input_ids, batch.positions, batch.target_ids))
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
            log_probs: torch.Tensor = model(*inputs)
        return log_probs.float().numpy()

    return gathered_scorer(options.folder, forward, options.max_batch_tokens or MAX_BATCH_TOKENS)
