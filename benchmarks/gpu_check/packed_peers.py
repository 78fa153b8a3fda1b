"""Hugging Face in the three ways that a careful user batches masked copies.

Batches are made beforehand and lie in the host's memory, pinned; see packed_contestants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from contestant_batches import batches, read_tokenizer
from contestant_torch import load_gathered
from packed_batches import Scores, groups, in_slots, masked_copies, on, padded_batches, pinned
from torch._inductor import config
from transformers import AutoModelForMaskedLM
from unpadded_peer import UnpaddedLogProbs, choose_attention

GATHERED_TOKENS, PADDED_TOKENS, PADDED_LOGITS = 32768, 16384, 1 << 30
"""Of a batch at most: tokens; where all logits are stored, tokens and logits."""

COMPILE_THREADS = 4
"""Processes, which each compile so many kernels: several models are compiled at once."""


class Peer:
    _folder: str
    _device: str

    def details(self) -> dict[str, str]:
        return {}

    def executed_flops(self) -> int | None:
        return None


class Gathered(Peer):
    """Hugging Face in batches of one length, hidden states gathered at the targets before the head."""

    def __init__(self, dtype: torch.dtype = torch.bfloat16, compiled: bool = False) -> None:
        self._dtype = dtype
        self._compiled = compiled

    def load(self, folder: str, device: str) -> None:
        self._folder, self._device = folder, device
        self._model: Any = load_gathered(folder, self._dtype).to(device)
        if self._compiled:
            # A compiler of C++ takes longer than the whole rest of a dry run.
            backend = "eager" if device == "cpu" else "inductor"
            config.compile_threads = COMPILE_THREADS
            self._model = torch.compile(self._model, dynamic=True, backend=backend)

    def prepare(self, texts: Sequence[str]) -> None:
        tokenizer, mask_id = read_tokenizer(self._folder)
        made = list(batches(tokenizer.encode_batch(list(texts)), mask_id, GATHERED_TOKENS))
        self._batches = [pinned(b.input_ids, b.positions, b.target_ids, device=self._device) for b in made]
        self._slots = np.concatenate([batch.slots for batch in made])

    def score(self) -> Scores:
        with torch.inference_mode():
            found = [self._model(*on(self._device, batch)) for batch in self._batches]
        return in_slots(found, self._slots)


class Padded(Peer):
    """Hugging Face in the order of the texts, padded to the longest of a batch, logits at every position."""

    def load(self, folder: str, device: str) -> None:
        self._folder, self._device = folder, device
        model = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="sdpa")
        self._model = model.eval().to(device)

    def prepare(self, texts: Sequence[str]) -> None:
        num_tokens = min(PADDED_TOKENS, PADDED_LOGITS // self._model.config.vocab_size)
        made = padded_batches(masked_copies(self._folder, texts), num_tokens)
        self._batches = [pinned(*batch, device=self._device) for batch in made]

    def score(self) -> Scores:
        found = []
        with torch.inference_mode():
            for batch in self._batches:
                input_ids, mask, positions, target_ids = on(self._device, batch)
                logits = self._model(input_ids=input_ids, attention_mask=mask).logits
                log_probs = logits.float().log_softmax(-1)  # [b, length, V]
                rows = torch.arange(len(positions), device=self._device)
                found.append(log_probs[rows, positions, target_ids])
        return in_slots(found)


class Unpadded(Peer):
    """Hugging Face without padding, gathered before the head."""

    def load(self, folder: str, device: str) -> None:
        self._folder, self._device = folder, device
        self._attention, attention = choose_attention(device)
        self._model = UnpaddedLogProbs(folder, torch.bfloat16, attention).to(device)

    def prepare(self, texts: Sequence[str]) -> None:
        self._batches = []
        self._longest = []
        for copies in groups(masked_copies(self._folder, texts), GATHERED_TOKENS):
            lengths = [len(row) for row, _, _ in copies]
            starts = np.cumsum([0, *lengths])
            arrays = (
                np.concatenate([row for row, _, _ in copies]),
                np.concatenate([np.arange(length) for length in lengths]),
                starts.astype(np.int32),
                starts[:-1] + [position for _, position, _ in copies],
                np.array([target for _, _, target in copies]),
            )
            self._batches.append(pinned(*arrays, device=self._device))
            self._longest.append(max(lengths))

    def score(self) -> Scores:
        found = []
        with torch.inference_mode():
            for batch, longest in zip(self._batches, self._longest, strict=True):
                input_ids, positions, cu_seqlens, targets, target_ids = on(self._device, batch)
                found.append(self._model(input_ids, positions, cu_seqlens, longest, targets, target_ids))
        return in_slots(found)

    def details(self) -> dict[str, str]:
        return {"attention": self._attention}
