"""The losses of mlmfast.functional as modules, in the manner of torch.nn."""

from __future__ import annotations

from mlmfast.extras import require

try:
    from torch import Tensor, nn
except ImportError:
    require("torch", extra="torch", purpose="mlmfast.nn")
    raise

from mlmfast import functional
from mlmfast.kernels.impl_choice import check_impl
from mlmfast.kernels.rules import ScoringRule

__all__ = ["LinearScoringRuleLoss", "ScoringRuleLoss"]


class RuleLoss(nn.Module):
    """The settings of a loss, checked once. Raises SettingsError for those that do not fit."""

    def __init__(
        self,
        rule: str = "log",
        *,
        alpha: float = 2.0,
        smoothing: float = 0.0,
        masked_log: bool = True,
        reduction: str = "mean",
        ignore_index: int = -100,
    ) -> None:
        super().__init__()
        ScoringRule(rule, alpha, smoothing, masked_log)
        functional.check_reduction(reduction)
        self.rule = rule
        self.alpha = alpha
        self.smoothing = smoothing
        self.masked_log = masked_log
        self.reduction = reduction
        self.ignore_index = ignore_index

    def extra_repr(self) -> str:
        shown = ("alpha", "smoothing", "masked_log", "reduction", "ignore_index")
        return ", ".join([repr(self.rule), *(f"{name}={getattr(self, name)!r}" for name in shown)])


class ScoringRuleLoss(RuleLoss):
    """functional.scoring_rule_loss with its settings kept."""

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """logits [..., V], target [...] to the loss, of target's shape with reduction `none`."""
        return functional.scoring_rule_loss(
            logits,
            target,
            rule=self.rule,
            alpha=self.alpha,
            smoothing=self.smoothing,
            masked_log=self.masked_log,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
        )


class LinearScoringRuleLoss(RuleLoss):
    """functional.linear_scoring_rule_loss with its settings kept.

    It holds no weight: a decoder's, often tied to an embedding, is given with each call.
    """

    def __init__(
        self,
        rule: str = "log",
        *,
        alpha: float = 2.0,
        smoothing: float = 0.0,
        masked_log: bool = True,
        reduction: str = "mean",
        ignore_index: int = -100,
        impl: str = "auto",
    ) -> None:
        super().__init__(
            rule,
            alpha=alpha,
            smoothing=smoothing,
            masked_log=masked_log,
            reduction=reduction,
            ignore_index=ignore_index,
        )
        check_impl(impl)
        self.impl = impl

    def forward(
        self,
        input: Tensor,
        linear_weight: Tensor,
        target: Tensor,
        *,
        linear_bias: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:
        """input [..., D], linear_weight [V, D], linear_bias [V], target [...], or [M] with rows int64[M]."""
        return functional.linear_scoring_rule_loss(
            input,
            linear_weight,
            target,
            linear_bias=linear_bias,
            rule=self.rule,
            alpha=self.alpha,
            smoothing=self.smoothing,
            masked_log=self.masked_log,
            rows=rows,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            impl=self.impl,
        )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, impl={self.impl!r}"
