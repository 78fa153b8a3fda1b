"""CTranslate2's BERT encoder with the model's own head in torch: CTranslate2 has no masked-LM head.

Its converter and so this file run in .venv-ctranslate2, with transformers 4.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import ctranslate2  # type: ignore[import-not-found,unused-ignore]
import numpy as np
import torch
from contestant_batches import Batch, Score, UnavailableError, gathered_scorer
from contestant_torch import lm_head
from ctranslate2.converters import TransformersConverter  # type: ignore[import-not-found,unused-ignore]
from numpy.typing import NDArray
from transformers import AutoModelForMaskedLM

MAX_BATCH_TOKENS = 2048


def load(options: argparse.Namespace) -> Score:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as parent:
        converted = str(Path(parent) / "converted")
        try:
            TransformersConverter(options.folder).convert(converted)
        except (ValueError, NotImplementedError, KeyError, AttributeError) as error:
            raise UnavailableError(f"CTranslate2's converter refuses the model: {error!r}") from error
        encoder = ctranslate2.Encoder(
            converted, device="cpu", compute_type=options.precision, inter_threads=1, intra_threads=1
        )
    head = lm_head(AutoModelForMaskedLM.from_pretrained(options.folder, dtype=torch.float32).eval())

    def forward(batch: Batch) -> NDArray[Any]:
        ids = ctranslate2.StorageView.from_array(batch.input_ids.astype(np.int32))
        lengths = np.full(len(batch.input_ids), batch.input_ids.shape[1], dtype=np.int32)
        found = encoder.forward_batch(ids, ctranslate2.StorageView.from_array(lengths))
        hidden = torch.from_numpy(np.array(found.last_hidden_state))  # [b, length, hidden_size]
        rows = torch.arange(len(hidden))
        with torch.inference_mode():
            logits = head(hidden[rows, torch.from_numpy(batch.positions)])
            log_probs: torch.Tensor = logits.log_softmax(dim=-1)[rows, torch.from_numpy(batch.target_ids)]
        return log_probs.numpy()

    return gathered_scorer(options.folder, forward, options.max_batch_tokens or MAX_BATCH_TOKENS)
