"""From the states at the places to the results of the targets."""

from __future__ import annotations

import torch
from torch import Tensor

from mlmfast.engines.base import Outputs
from mlmfast.engines.packed.spec import EncoderSpec
from mlmfast.engines.packed.weights import Linear, VocabularyHead
from mlmfast.kernels import score_chunked
from mlmfast.kernels.encoder_inputs import Layout
from mlmfast.kernels.encoder_ops import EncoderOperators
from mlmfast.kernels.impl_choice import load_impl, why_not
from mlmfast.kernels.logit_tiles import slices
from mlmfast.kernels.rules import ScoringRule
from mlmfast.kernels.score_chunked import ScoreColumns, ScoreRequest, chunk_logits
from mlmfast.types import Int64Array, TargetOutputs

LOGITS_BYTES = 1 << 26
"""Memory on the device of logits on their way to the host."""
SCORE = "linear_score"


class Head:
    """Called with states float32[p, H]; gives the layout's targets in their order there."""

    def __init__(
        self,
        spec: EncoderSpec,
        weights: VocabularyHead | Linear,
        operators: EncoderOperators,
        dtype: torch.dtype,
    ) -> None:
        self._spec = spec
        self._weights = weights
        self._operators = operators
        self._dtype = dtype

    def __call__(
        self, states: Tensor, layout: Layout, target_offsets: Int64Array, outputs: Outputs
    ) -> TargetOutputs:
        """target_offsets: the layout's, on the host. Raises SettingsError for outputs that only a
        distribution over the vocabulary has."""
        columns = self.columns(states, layout, target_offsets, outputs)
        # Into pinned memory, all under way before the host waits.
        copies = {name: column.to("cpu", non_blocking=True) for name, column in columns.items()}
        if states.is_cuda:
            torch.cuda.current_stream(states.device).synchronize()
        return TargetOutputs(**{name: copy.numpy() for name, copy in copies.items()})

    def columns(
        self, states: Tensor, layout: Layout, target_offsets: Int64Array, outputs: Outputs
    ) -> dict[str, Tensor]:
        """Columns of TargetOutputs on the device, but whole logits, which are many, on the host."""
        num_targets, counts = len(layout.target_ids), layout.target_offsets.diff()
        place = torch.repeat_interleave(counts, output_size=num_targets)  # [t]
        weights = self._weights
        if isinstance(weights, Linear):
            outputs.require_values_alone()
            return {"log_prob": weights(states)[place, 0]}
        features = self._features(weights, states)
        request = ScoreRequest(
            rules=(ScoringRule("log"),),
            lse=outputs.logit and not outputs.logits,
            entropy=outputs.entropy,
            rank=outputs.rank,
            topk=min(outputs.top_k, self._spec.vocab_size),
        )
        found = self._scores(features, weights, layout, target_offsets, request)
        columns = {"log_prob": found.scores[0]}
        if outputs.rank:
            columns["rank"] = found.rank.int()
        if outputs.entropy:
            columns["entropy"] = found.entropy[place]
        if outputs.top_k:
            columns["top_ids"] = found.top_ids.int()[place]
            columns["top_log_probs"] = found.top_log_probs[place]
        if outputs.logits:
            columns["logits"] = logits_at(features, weights.decoder_weight, weights.decoder_bias, place)
        if outputs.logit and outputs.logits:
            columns["logit"] = columns["logits"].gather(1, layout.target_ids.cpu()[:, None])[:, 0]
        elif outputs.logit:
            columns["logit"] = found.scores[0] + found.lse[place]
        return columns

    def _features(self, weights: VocabularyHead, states: Tensor) -> Tensor:
        """What the decoder multiplies, [p, E]; computed in float32."""
        x = self._operators.activation(weights.dense(states), self._spec.head_activation, False)
        return self._operators.add_norm(x, None, weights.norm, False, self._dtype)

    def _scores(
        self,
        features: Tensor,
        weights: VocabularyHead,
        layout: Layout,
        target_offsets: Int64Array,
        request: ScoreRequest,
    ) -> ScoreColumns:
        """By Triton's kernel where it can; else, as for top-k, by plain torch some places at a time;
        memory.HEAD_BYTES has room for their logits."""
        decoder, bias = weights.decoder_weight, weights.decoder_bias
        problem = features, decoder, bias, layout.target_ids, layout.target_offsets, request
        if self._operators.impl == "triton" and why_not(SCORE, "triton", features, decoder, request) is None:
            found: ScoreColumns = load_impl(SCORE, "triton").score(*problem)
            return found
        return score_chunked.score(*problem, offsets_on_host=target_offsets)


def logits_at(features: Tensor, decoder: Tensor, bias: Tensor | None, place: Tensor) -> Tensor:
    """float32[t, V] on the host, of the places int64[t] of features [p, E]."""
    logits = torch.empty((len(place), len(decoder)))
    for chunk in slices(len(place), max(1, LOGITS_BYTES // (4 * len(decoder)))):
        logits[chunk] = chunk_logits(features[place[chunk]], decoder, bias).cpu()
    return logits
