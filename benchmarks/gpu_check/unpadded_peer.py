"""Hugging Face without padding: rows back to back, attention by a kernel for sequences of any lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from absent import AbsentError
from contestant_torch import lm_head
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForMaskedLM

NAME = "unpadded"
"""Among the implementations of attention of Transformers."""
Attention = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]
"""Queries, keys and values [n, heads, d], cu_seqlens int32[b+1] and the longest length to [n, heads, d]."""


def flash_attn() -> Attention:
    """Raises ImportError."""
    from flash_attn import flash_attn_varlen_func

    return lambda q, k, v, offsets, longest: flash_attn_varlen_func(
        q, k, v, offsets, offsets, longest, longest
    )


def torch_varlen() -> Attention:
    """Raises ImportError."""
    from torch.nn.attention.varlen import varlen_attn

    return lambda q, k, v, offsets, longest: varlen_attn(q, k, v, offsets, offsets, longest, longest)


def one_by_one() -> Attention:
    """On a CPU, which neither of them runs on."""

    def attention(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, longest: int) -> Tensor:
        lengths = offsets.diff().tolist()
        parts = zip(*(x.transpose(0, 1).split(lengths, dim=1) for x in (q, k, v)), strict=True)
        return torch.cat([scaled_dot_product_attention(*part) for part in parts], dim=1).transpose(0, 1)

    return attention


def choose_attention(device: str) -> tuple[str, Attention]:
    """Its name, and the first that is there. Raises AbsentError."""
    if device == "cpu":
        return "a loop over the sequences", one_by_one()
    reasons = []
    for name, find in (("flash-attn", flash_attn), ("torch varlen_attn", torch_varlen)):
        try:
            return name, find()
        except ImportError as error:
            reasons.append(f"{name}: {error}")
    raise AbsentError("; ".join(reasons))


def register(attention: Attention) -> None:
    """So that a model of Transformers can be loaded with it."""

    def forward(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: None, **options: Any
    ) -> tuple[Tensor, None]:
        """[1, heads, n, d] each to [1, n, heads, d]; Transformers scales by 1/sqrt(d) as the kernels do."""
        assert mask is None
        q, k, v = (x[0].transpose(0, 1).contiguous() for x in (query, key, value))
        found = attention(q, k, v, options["cu_seq_lens_q"], options["max_length_q"])
        return found[None], None

    AttentionInterface.register(NAME, forward)
    AttentionMaskInterface.register(NAME, lambda *_, **__: None)


class UnpaddedLogProbs(nn.Module):
    """A BERT- or RoBERTa-like masked LM with its head, and a float32 log-softmax, at targets only."""

    def __init__(self, folder: str, dtype: torch.dtype, attention: Attention) -> None:
        super().__init__()
        register(attention)
        model = AutoModelForMaskedLM.from_pretrained(folder, dtype=dtype, attn_implementation=NAME).eval()
        self.encoder = model.base_model
        self.head = lm_head(model)

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        cu_seqlens: Tensor,
        longest: int,
        targets: Tensor,
        target_ids: Tensor,
    ) -> Tensor:
        """input_ids and position_ids [n], cu_seqlens int32[b+1]; targets [t], indices of tokens, target_ids
        [t] to log-probabilities [t]."""
        hidden = self.encoder(
            input_ids=input_ids[None],
            position_ids=position_ids[None],
            cu_seq_lens_q=cu_seqlens,
            cu_seq_lens_k=cu_seqlens,
            max_length_q=longest,
            max_length_k=longest,
        ).last_hidden_state[0]
        log_probs = self.head(hidden[targets]).float().log_softmax(-1)
        return log_probs.gather(1, target_ids[:, None])[:, 0]
