"""What a training run does, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from mlmfast.errors import SettingsError
from mlmfast.kernels.rules import ScoringRule

SCHEDULES = ("cosine", "inverse_sqrt", "constant")
PRECISIONS = ("float32", "bfloat16")
OVERLONG = ("error", "truncate", "split")


@dataclass(frozen=True)
class RowSettings:
    """How texts become rows.

    overlong: a text of more tokens than fit is an `error`, is cut off (`truncate`), or becomes several rows
    of nearly equal lengths (`split`). block_tokens: consecutive texts are joined and cut into rows of that
    many tokens, special tokens included; None: a row per text.
    """

    overlong: str = "error"
    block_tokens: int | None = None

    def __post_init__(self) -> None:
        require_one_of("overlong", self.overlong, OVERLONG)
        if self.block_tokens is not None and self.overlong != "error":
            raise SettingsError(f"overlong {self.overlong!r}: no text is too long for blocks; leave one out")


@dataclass(frozen=True)
class MaskingSettings:
    """Which tokens are targets, and what stands in their place (Devlin et al. 2019, section 3.1).

    probability: of each ordinary token, or of each word if `whole_word`. mask_share, random_share: of the
    targets, those replaced by the mask token and by a random ordinary token; the rest stay as they are.
    """

    probability: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1
    whole_word: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise SettingsError(f"mask probability is {self.probability}; expected above 0, to 1")
        shares = (self.mask_share, self.random_share)
        if not all(0 <= share <= 1 for share in shares) or sum(shares) > 1 + 1e-9:
            raise SettingsError(
                f"mask share {shares[0]} and random share {shares[1]}: expected shares of 0 to 1 that "
                "together are at most 1"
            )


@dataclass(frozen=True)
class ScheduleSettings:
    """The learning rate: from 0 up to learning_rate over the warm-up, then by the schedule."""

    learning_rate: float = 5e-5
    schedule: str = "cosine"
    warmup_steps: int = 0

    def __post_init__(self) -> None:
        require_one_of("schedule", self.schedule, SCHEDULES)
        require_number("learning_rate", self.learning_rate, above=0)
        require_whole("warmup_steps", self.warmup_steps, 0)


@dataclass(frozen=True)
class TrainingSettings:
    """A run: `log_steps` steps with the log score, then `rule` up to `steps` (Shao et al. 2024's recipe).

    batch_size: rows of one step. max_batch_tokens: tokens forwarded at once, padding counted; the gradients
    of a step accumulate over as many parts as that makes. precision: of the matrix products. freeze_layers:
    how many of the encoder's first layers stay as they are. max_gradient_norm: the gradient of a step is
    scaled down to it. evaluate_every, checkpoint_every: in steps; None: evaluated only at start and end.
    """

    steps: int = 1000
    log_steps: int = 0
    rule: ScoringRule = field(default_factory=lambda: ScoringRule("log"))
    batch_size: int = 32
    max_batch_tokens: int = 4096
    precision: str = "float32"
    weight_decay: float = 0.01
    max_gradient_norm: float = 1.0
    freeze_embeddings: bool = False
    freeze_layers: int = 0
    evaluate_every: int | None = None
    checkpoint_every: int = 200
    seed: int = 0
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    masking: MaskingSettings = field(default_factory=MaskingSettings)

    def __post_init__(self) -> None:
        from mlmfast.kernels.rule_chunked import MAX_ALPHA

        require_one_of("precision", self.precision, PRECISIONS)
        if self.rule.alpha > MAX_ALPHA:
            raise SettingsError(f"alpha is {self.rule.alpha}; expected at most {MAX_ALPHA} to train with")
        for name in ("steps", "batch_size", "max_batch_tokens", "checkpoint_every"):
            require_whole(name, getattr(self, name), 1)
        for name in ("log_steps", "freeze_layers", "seed"):
            require_whole(name, getattr(self, name), 0)
        if self.evaluate_every is not None:
            require_whole("evaluate_every", self.evaluate_every, 1)
        require_number("weight_decay", self.weight_decay, least=0)
        if not self.max_gradient_norm > 0:
            raise SettingsError(f"max_gradient_norm is {self.max_gradient_norm}; expected above 0, or inf")
        if self.log_steps > self.steps:
            raise SettingsError(f"log_steps is {self.log_steps}, but the run has only {self.steps} steps")
        if self.log_steps and self.rule.name == "log":
            raise SettingsError("log_steps come before those of another rule, but the rule is log; name it")
        if self.schedule.warmup_steps >= self.steps:
            raise SettingsError(
                f"warmup_steps is {self.schedule.warmup_steps}; expected less than the {self.steps} steps"
            )

    def rule_at(self, step: int) -> ScoringRule:
        """The rule of step `step`, counted from 1."""
        if step > self.log_steps:
            return self.rule
        return ScoringRule("log", smoothing=self.rule.smoothing)


def require_one_of(name: str, value: str, expected: tuple[str, ...]) -> None:
    """Raises SettingsError."""
    if value not in expected:
        raise SettingsError(f"unknown {name} {value!r}; expected one of {', '.join(expected)}")


def require_whole(name: str, value: object, least: int) -> None:
    """Raises SettingsError."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise SettingsError(f"{name} is {value!r}; expected a whole number, from {least}")


def require_number(name: str, value: float, *, above: float = -math.inf, least: float = -math.inf) -> None:
    """Raises SettingsError."""
    if not (math.isfinite(value) and value > above and value >= least):
        bound = f"above {above:g}" if math.isfinite(above) else f"from {least:g}"
        raise SettingsError(f"{name} is {value!r}; expected a number {bound}")
