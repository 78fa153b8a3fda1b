"""The options of `finetune`, as groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from mlmfast.training import TrainingSettings

InputFormat = Literal["text", "jsonl", "csv", "tsv", "fasta"]


@dataclass(frozen=True)
class TextInputOptions:
    """How texts are read and made rows."""

    input_format: Annotated[InputFormat, typer.Option(help="Of the texts and the held-out ones.")] = "text"
    field: Annotated[
        str | None, typer.Option(metavar="NAME", help="The text's field or column (jsonl, csv, tsv).")
    ] = None
    overlong: Annotated[
        Literal["error", "truncate", "split"], typer.Option(help="For texts longer than the model takes.")
    ] = "error"
    block_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Join consecutive texts and cut them into rows of N tokens; by default each text is a row.",
        ),
    ] = None


@dataclass(frozen=True)
class LossOptions:
    """The scoring rule, and the log score before it."""

    rule: Annotated[str, typer.Option(help="The loss: log, brier, spherical, power or pseudospherical.")] = (
        "log"
    )
    alpha: Annotated[
        float, typer.Option(help="Exponent of power and pseudospherical, above 1, at most 6.")
    ] = 2.0
    smoothing: Annotated[
        float, typer.Option(help="Share of the target's weight spread over the vocabulary.")
    ] = 0.0
    masked_log: Annotated[
        bool, typer.Option(help="With smoothing, keep a gradient where tokens are too improbable.")
    ] = True
    log_steps: Annotated[
        int, typer.Option(min=0, metavar="N", help="The first N steps use the log score.")
    ] = 0


@dataclass(frozen=True)
class DynamicMaskingOptions:
    """What is masked; drawn anew each time a row comes."""

    mask_probability: Annotated[float, typer.Option(help="Of a token, or a word, to be a target.")] = 0.15
    mask_share: Annotated[float, typer.Option(help="Of the targets: seen as the mask token.")] = 0.8
    random_share: Annotated[
        float, typer.Option(help="Of the targets: seen as a random token; the rest stay as they are.")
    ] = 0.1
    whole_word: Annotated[
        bool, typer.Option("--whole-word", help="All tokens of a word are targets, or none.")
    ] = False


@dataclass(frozen=True)
class DescentOptions:
    """How weights change, whatever is learnt."""

    schedule: Annotated[
        str, typer.Option(help="Of the learning rate after its warm-up: cosine, inverse_sqrt, constant.")
    ] = "cosine"
    warmup_steps: Annotated[int, typer.Option(min=0, help="Steps over which it rises.")] = 0
    weight_decay: Annotated[float, typer.Option(help="AdamW's; not of norms and biases.")] = 0.01
    max_gradient_norm: Annotated[float, typer.Option(help="Gradients are scaled down to it; inf: never.")] = (
        1.0
    )
    precision: Annotated[str, typer.Option(help="Of matrix products: float32, or bfloat16 by autocast.")] = (
        "float32"
    )
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...")] = None
    threads: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Of torch; by default its own choice.")
    ] = None


@dataclass(frozen=True)
class OptimiserOptions(DescentOptions):
    """Of what size steps are, and which weights change."""

    steps: Annotated[int, typer.Option(min=1, help="All steps, those of --log-steps among them.")] = 1000
    batch_size: Annotated[int, typer.Option(min=1, help="Rows of one step.")] = 32
    max_batch_tokens: Annotated[
        int,
        typer.Option(min=1, help="Tokens forwarded at once; the gradients of a step's parts accumulate."),
    ] = 4096
    learning_rate: Annotated[float, typer.Option(help="At its peak.")] = 5e-5
    freeze_embeddings: Annotated[
        bool, typer.Option("--freeze-embeddings", help="Keep the embeddings, and what is tied to them.")
    ] = False
    freeze_layers: Annotated[int, typer.Option(min=0, metavar="N", help="Keep the first N layers.")] = 0


@dataclass(frozen=True)
class CheckpointOptions:
    """What is kept, and how the run is watched."""

    evaluate_every: Annotated[
        int | None,
        typer.Option(min=1, metavar="STEPS", help="Evaluate between start and end, too (--held-out)."),
    ] = None
    checkpoint_every: Annotated[
        int, typer.Option(min=1, metavar="STEPS", help="What a killed run loses at most.")
    ] = 200
    resume: Annotated[bool, typer.Option("--resume", help="Continue an unfinished run.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar, evaluations and summary.")] = False


def training_settings(
    loss: LossOptions,
    masking: DynamicMaskingOptions,
    optimiser: OptimiserOptions,
    checkpoints: CheckpointOptions,
) -> TrainingSettings:
    """Raises SettingsError for options that do not fit."""
    from mlmfast.kernels.rules import ScoringRule
    from mlmfast.training import MaskingSettings, ScheduleSettings, TrainingSettings

    return TrainingSettings(
        steps=optimiser.steps,
        log_steps=loss.log_steps,
        rule=ScoringRule(loss.rule, loss.alpha, loss.smoothing, loss.masked_log),
        batch_size=optimiser.batch_size,
        max_batch_tokens=optimiser.max_batch_tokens,
        precision=optimiser.precision,
        weight_decay=optimiser.weight_decay,
        max_gradient_norm=optimiser.max_gradient_norm,
        freeze_embeddings=optimiser.freeze_embeddings,
        freeze_layers=optimiser.freeze_layers,
        evaluate_every=checkpoints.evaluate_every,
        checkpoint_every=checkpoints.checkpoint_every,
        seed=optimiser.seed,
        schedule=ScheduleSettings(optimiser.learning_rate, optimiser.schedule, optimiser.warmup_steps),
        masking=MaskingSettings(
            masking.mask_probability, masking.mask_share, masking.random_share, masking.whole_word
        ),
    )
