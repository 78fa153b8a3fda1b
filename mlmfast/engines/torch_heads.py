"""The last step of the torch engine: hidden states at the targets to log-probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from mlmfast.engines.base import Outputs
from mlmfast.functional import linear_score
from mlmfast.kernels.head import Head
from mlmfast.models import GELU, HeadLayout
from mlmfast.types import Int32Array, Int64Array, TargetOutputs

LOGITS_BYTES = 1 << 26
"""Memory the logits of one chunk may take where they are materialised."""


class TargetHead(Protocol):
    """hidden [u, hidden_size] at u places; the targets of place i are target_ids[offsets[i]:offsets[i+1]]."""

    def __call__(
        self, hidden: torch.Tensor, target_ids: Int32Array, offsets: Int64Array, outputs: Outputs
    ) -> TargetOutputs: ...


class KernelHead:
    """The CPU kernel: the model's transform in torch, then product and log-softmax without logits."""

    def __init__(
        self,
        transform: Callable[[torch.Tensor], torch.Tensor],
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        word_start: NDArray[np.uint8] | None,
    ) -> None:
        self._transform = transform
        self._head = Head(
            weight.float().contiguous().numpy(),
            None if bias is None else bias.float().contiguous().numpy(),
            subset=word_start,
        )

    def __call__(
        self, hidden: torch.Tensor, target_ids: Int32Array, offsets: Int64Array, outputs: Outputs
    ) -> TargetOutputs:
        features = self._transform(hidden).float().contiguous().numpy()
        names = ["log_prob"]
        names += [name for name in ("logit", "logits", "rank", "entropy") if getattr(outputs, name)]
        names += ["word_start_log_prob"] if outputs.word_start else []
        return self._head.score(features, target_ids, offsets, outputs=tuple(names), top_k=outputs.top_k)


class LinearScoreHead:
    """A head of a known layout on a GPU: product and log-softmax without logits, in the kernels of
    linear_score. What is wanted of whole rows of logits is left to LogitsHead."""

    def __init__(
        self,
        transform: Callable[[torch.Tensor], torch.Tensor],
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        word_start: NDArray[np.uint8] | None,
        impl: str = "auto",
    ) -> None:
        """weight and bias: the model's own, which may move to another device later."""
        self._transform = transform
        self._weight = weight
        self._bias = bias
        self._impl = impl
        self._logits_head = LogitsHead(
            lambda hidden: torch.nn.functional.linear(transform(hidden), weight, bias),
            len(weight),
            word_start,
        )

    def __call__(
        self, hidden: torch.Tensor, target_ids: Int32Array, offsets: Int64Array, outputs: Outputs
    ) -> TargetOutputs:
        if outputs.top_k or outputs.logits or outputs.word_start:
            return self._logits_head(hidden, target_ids, offsets, outputs)
        ids, bounds = (torch.from_numpy(x).to(hidden.device) for x in (target_ids, offsets))
        found = linear_score(
            self._transform(hidden),
            self._weight,
            (ids, bounds),
            linear_bias=self._bias,
            return_lse=outputs.logit,
            return_entropy=outputs.entropy,
            return_rank=outputs.rank,
            impl=self._impl,
        )
        row = torch.repeat_interleave(bounds.diff(), output_size=len(ids))
        columns = {"log_prob": found.scores[0]}
        if found.lse is not None:
            columns["logit"] = found.scores[0] + found.lse[row]
        if found.entropy is not None:
            columns["entropy"] = found.entropy[row]
        if found.rank is not None:
            columns["rank"] = found.rank.int()
        return TargetOutputs(**{name: column.cpu().numpy() for name, column in columns.items()})


class LogitsHead:
    """Any head, on any device: logits of a chunk of places at a time, their log-softmax in float32."""

    def __init__(
        self,
        logits_of: Callable[[torch.Tensor], torch.Tensor],
        vocab_size: int,
        word_start: NDArray[np.uint8] | None,
    ) -> None:
        self._logits_of = logits_of
        self._chunk = max(1, LOGITS_BYTES // (4 * vocab_size))
        self._word_start = None if word_start is None else torch.from_numpy(word_start.astype(bool))

    def __call__(
        self, hidden: torch.Tensor, target_ids: Int32Array, offsets: Int64Array, outputs: Outputs
    ) -> TargetOutputs:
        counts = np.diff(offsets)
        parts = []
        for start in range(0, len(counts), self._chunk):
            end = min(start + self._chunk, len(counts))
            place = np.repeat(np.arange(end - start), counts[start:end])
            ids = target_ids[offsets[start] : offsets[end]].astype(np.int64)
            parts.append(self._chunk_outputs(hidden[start:end], place, ids, outputs))
        columns = {
            name: torch.cat([part[name] for part in parts]).cpu().numpy()
            for name in (parts[0] if parts else ())
        }
        return TargetOutputs(**columns) if columns else TargetOutputs(np.zeros(0, dtype=np.float32))

    def _chunk_outputs(
        self, hidden: torch.Tensor, place: Int64Array, ids: Int64Array, outputs: Outputs
    ) -> dict[str, torch.Tensor]:
        logits = self._logits_of(hidden).float()  # [chunk, V]
        device = logits.device
        rows, targets = torch.from_numpy(place).to(device), torch.from_numpy(ids).to(device)
        log_normaliser = torch.logsumexp(logits, dim=-1)
        logit = logits[rows, targets]
        columns: dict[str, torch.Tensor] = {"log_prob": logit - log_normaliser[rows]}
        if outputs.logit:
            columns["logit"] = logit
        if outputs.logits:
            columns["logits"] = logits[rows]
        if outputs.rank:
            # Row by row: a place's logits are not copied for each of its targets.
            ranks = [(logits[r] > z).sum() for r, z in zip(place.tolist(), logit, strict=True)]
            columns["rank"] = torch.stack(ranks).int() if ranks else rows.int()
        if outputs.entropy:
            log_probs = logits - log_normaliser[:, None]
            columns["entropy"] = torch.special.entr(log_probs.exp_()).sum(dim=-1)[rows]
        if outputs.top_k:
            top = torch.topk(logits, min(outputs.top_k, logits.shape[-1]), dim=-1)
            columns["top_ids"] = top.indices.int()[rows]
            columns["top_log_probs"] = (top.values - log_normaliser[:, None])[rows]
        if outputs.word_start and self._word_start is not None:
            starts = self._word_start.to(device)[: logits.shape[-1]]
            columns["word_start_log_prob"] = (torch.logsumexp(logits[:, starts], -1) - log_normaliser)[rows]
        return columns


def head_parts(
    model: Any, layout: HeadLayout
) -> tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor, torch.Tensor | None]:
    """A head of a known layout: its transform, the decoder's weight [V, D], and bias [V] or None."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    bias = next((parameters[name] for name in layout.biases if name in parameters), None)
    return layout_transform(model, layout.transform), model.get_parameter(layout.decoder), bias


def layout_transform(model: Any, steps: tuple[str, ...]) -> Callable[[torch.Tensor], torch.Tensor]:
    """The modules of a head's transform, applied in order."""
    functions: list[Callable[[torch.Tensor], torch.Tensor]] = [
        torch.nn.functional.gelu if step == GELU else model.get_submodule(step) for step in steps
    ]

    def transform(hidden: torch.Tensor) -> torch.Tensor:
        for function in functions:
            hidden = function(hidden)
        return hidden

    return transform
