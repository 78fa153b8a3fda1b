"""Scoring-rule losses for any language model of transformers, and for its Trainer.

The output layer's product and the loss are one operation here, so that logits of all positions and the whole
vocabulary never exist.

    from transformers import Seq2SeqTrainer

    class BrierTrainer(ScoringRuleLoss, Seq2SeqTrainer):
        scoring_rule = ScoringRule("brier", smoothing=0.1)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mlmfast.errors import SettingsError, UnsupportedModelError
from mlmfast.functional import linear_scoring_rule_loss, scoring_rule_loss
from mlmfast.kernels.rules import ScoringRule
from mlmfast.models.heads import UNSUPPORTED_FIELDS

__all__ = ["ScoringRule", "ScoringRuleLoss", "model_loss"]

IGNORED = -100
"""The label of positions without a target, as everywhere in transformers."""
LOGIT_FIELDS = [field for field in UNSUPPORTED_FIELDS if "logit" in field and not field.startswith("attn")]
"""Configuration fields by which a model scales or caps the logits of its output layer."""
PROBE_TOLERANCE = 2e-2
"""How far the loss layer's logits may be from the model's own, relative to the largest; bfloat16 rounds by
1/256, a layer that is not all of the head is far off."""


class ScoringRuleLoss:
    """Put before a Trainer of transformers among the bases of a class; `scoring_rule` is the loss.

    Training never makes all logits. Where the Trainer asks for outputs (evaluation, prediction), they are
    whole and the loss is of them. A step's loss is the mean over the labels of all its accumulated batches
    where the Trainer counts them, which it does for models that take loss arguments; otherwise it is the
    mean over the batch.
    """

    scoring_rule = ScoringRule("log")

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """See transformers.Trainer.compute_loss; raises as `model_loss` does, and SettingsError in a run of
        several processes."""
        if getattr(getattr(self, "accelerator", None), "num_processes", 1) > 1:
            raise SettingsError("scoring-rule losses are normalised for one process; train with one")
        return model_loss(
            model,
            inputs,
            self.scoring_rule,
            num_items=num_items_in_batch,
            return_outputs=return_outputs,
        )


def model_loss(
    model: Any,
    inputs: Mapping[str, Any],
    rule: ScoringRule,
    *,
    num_items: Tensor | int | None = None,
    return_outputs: bool = False,
) -> Any:
    """The loss of a language model's predictions of `inputs["labels"]`, int64[b, L], -100 for no target.

    A causal model predicts label i from position i - 1, others from position i; an encoder-decoder's
    decoder inputs are made from the labels where `inputs` has none. The mean over all labels, or their sum
    divided by num_items. return_outputs: also the model's outputs, with all logits; without, logits exist
    at one position only.

    Raises SettingsError without labels, UnsupportedModelError for a model whose logits are not its output
    layer's: scaled, capped, or of several layers.
    """
    inputs = dict(inputs)
    labels = inputs.pop("labels", None)
    if labels is None:
        raise SettingsError("the batch has no labels, which a scoring rule compares predictions with")
    model_itself = getattr(model, "module", model)  # as data parallelism wraps it
    if model_itself.config.is_encoder_decoder and "decoder_input_ids" not in inputs:
        inputs["decoder_input_ids"] = model_itself.prepare_decoder_input_ids_from_labels(labels=labels)
    targets = _shifted(labels) if _is_causal(model_itself) else labels
    if return_outputs:
        outputs = model(**inputs)
        losses = scoring_rule_loss(
            outputs.logits, targets, **_arguments(rule), reduction="sum", ignore_index=IGNORED
        )
    else:
        hidden, layer, outputs = _before_output_layer(model, model_itself, inputs)
        rows = (targets.flatten() != IGNORED).nonzero().flatten()
        losses = linear_scoring_rule_loss(
            hidden,
            layer.weight,
            targets.flatten()[rows],
            linear_bias=_bias(model_itself, layer, outputs, hidden),
            rows=rows,
            **_arguments(rule),
            reduction="sum",
            ignore_index=IGNORED,
        )
    loss = losses / ((targets != IGNORED).sum() if num_items is None else num_items)
    return (loss, outputs) if return_outputs else loss


def _arguments(rule: ScoringRule) -> dict[str, Any]:
    return {
        "rule": rule.name,
        "alpha": rule.alpha,
        "smoothing": rule.smoothing,
        "masked_log": rule.masked_log,
    }


def _is_causal(model: Any) -> bool:
    return not model.config.is_encoder_decoder and bool(model.can_generate())


def _shifted(labels: Tensor) -> Tensor:
    """Label i + 1 at position i, none at the last."""
    return torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], IGNORED)], dim=1)


def _before_output_layer(
    model: Any, model_itself: Any, inputs: dict[str, Any]
) -> tuple[Tensor, nn.Linear, Any]:
    """What the output layer is given, [b, L, D]; that layer; outputs with one position's logits."""
    fields = [f for f in LOGIT_FIELDS if getattr(model_itself.config, f, None) not in (None, False, 1)]
    if fields:
        raise UnsupportedModelError(
            f"{type(model_itself).__name__} is configured with {fields[0]}, so that its logits are not those "
            "of its output layer; use scoring_rule_loss on its logits"
        )
    layer = model_itself.get_output_embeddings()
    if not isinstance(layer, nn.Linear):
        raise UnsupportedModelError(
            f"{type(model_itself).__name__} has no linear output layer (but {type(layer).__name__})"
        )
    seen: list[Tensor] = []

    def keep_first(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor]:
        seen.append(arguments[0])
        return (arguments[0][:, :1],)

    handle = layer.register_forward_pre_hook(keep_first)
    try:
        outputs = model(**inputs)
    finally:
        handle.remove()
    if len(seen) != 1:
        raise UnsupportedModelError(
            f"{type(model_itself).__name__} calls its output layer {len(seen)} times, where once is expected"
        )
    return seen[0], layer, outputs


def _bias(model: Any, layer: nn.Linear, outputs: Any, hidden: Tensor) -> Tensor | None:
    """The output layer's bias, with what the model adds to its logits (BART's final_logits_bias).

    Raises UnsupportedModelError if the model's logits are still not that layer's.
    """
    bias = layer.bias
    added = getattr(model, "final_logits_bias", None)
    if added is not None:
        bias = added.flatten() if bias is None else bias + added.flatten()
    with torch.no_grad():
        expected = outputs.logits[0, 0].float()
        found = nn.functional.linear(hidden[0, 0].float(), layer.weight.float(), bias).float()
        error = (found - expected).abs().max()
        if not error <= PROBE_TOLERANCE * expected.abs().max().clamp(min=1.0):
            raise UnsupportedModelError(
                f"the logits of {type(model).__name__} are not those of its output layer (off by "
                f"{float(error):.3g}); use scoring_rule_loss on them"
            )
    return bias
