"""What a distillation is told, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from mlmfast.errors import SettingsError
from mlmfast.results import PLL_MASKINGS
from mlmfast.training.settings import (
    PRECISIONS,
    ScheduleSettings,
    require_number,
    require_one_of,
    require_whole,
)

HEADS = ("token", "cls")
WEIGHTS = ("float16", "float32")


@dataclass(frozen=True)
class StudentSettings:
    """What the student is.

    head: `token` predicts every token's log-probability, `cls` the text's PLL from its first token.
    layers: how many of the teacher's it keeps, None for all; kept_layers: which, counted from 0, None for
    evenly spread ones. weights: the type its weights are written in. share_embeddings: its folder names the
    embeddings of the teacher's folder beside it in place of a copy.
    """

    head: str = "token"
    layers: int | None = None
    kept_layers: tuple[int, ...] | None = None
    freeze_embeddings: bool = False
    weights: str = "float16"
    share_embeddings: bool = False

    def __post_init__(self) -> None:
        require_one_of("head", self.head, HEADS)
        require_one_of("weights", self.weights, WEIGHTS)
        if self.layers is not None:
            require_whole("layers", self.layers, 1)
        if self.layers is not None and self.kept_layers is not None:
            raise SettingsError("layers and kept_layers both say which layers are kept; leave one out")
        if self.share_embeddings and not self.freeze_embeddings:
            raise SettingsError(
                "shared embeddings are the teacher's: share_embeddings needs freeze_embeddings"
            )


@dataclass(frozen=True)
class LossSettings:
    """See `mlmfast.training.distillation.loss`.

    sentence_weight: of the squared error of a text's sum beside that of its tokens. huber: the error, in
    standard deviations of the targets, from which it counts linearly, inf: never. Both are of head `token`.
    """

    sentence_weight: float = 0.1
    huber: float = math.inf

    def __post_init__(self) -> None:
        require_number("sentence_weight", self.sentence_weight, least=0)
        if not self.huber > 0:
            raise SettingsError(f"huber is {self.huber}; expected above 0, or inf")


@dataclass(frozen=True)
class DistillationSettings:
    """A run of `steps` batches. batch_tokens: tokens of one, padding counted.

    corrupted: corrupted variants of every text, which teacher and student score, too. masking: of the
    teacher. patience: evaluations without a new best held-out rank correlation after which the run ends,
    None: never. The rest as in TrainingSettings.
    """

    steps: int = 1000
    batch_tokens: int = 4096
    corrupted: int = 0
    masking: str = "original"
    precision: str = "float32"
    weight_decay: float = 0.01
    max_gradient_norm: float = 1.0
    evaluate_every: int | None = None
    patience: int | None = None
    checkpoint_every: int = 200
    seed: int = 0
    student: StudentSettings = field(default_factory=StudentSettings)
    loss: LossSettings = field(default_factory=LossSettings)
    schedule: ScheduleSettings = field(default_factory=lambda: ScheduleSettings(learning_rate=3e-4))

    def __post_init__(self) -> None:
        require_one_of("precision", self.precision, PRECISIONS)
        require_one_of("masking", self.masking, tuple(sorted(PLL_MASKINGS)))
        for name in ("steps", "batch_tokens", "checkpoint_every"):
            require_whole(name, getattr(self, name), 1)
        for name in ("corrupted", "seed"):
            require_whole(name, getattr(self, name), 0)
        for name in ("evaluate_every", "patience"):
            if getattr(self, name) is not None:
                require_whole(name, getattr(self, name), 1)
        if self.patience is not None and self.evaluate_every is None:
            raise SettingsError("patience counts evaluations; give evaluate_every, too")
        require_number("weight_decay", self.weight_decay, least=0)
        if not self.max_gradient_norm > 0:
            raise SettingsError(f"max_gradient_norm is {self.max_gradient_norm}; expected above 0, or inf")
        if self.schedule.warmup_steps >= self.steps:
            raise SettingsError(
                f"warmup_steps is {self.schedule.warmup_steps}; expected less than the {self.steps} steps"
            )
