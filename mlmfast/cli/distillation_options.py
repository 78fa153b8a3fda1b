"""The options of `distill`, as groups."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mlmfast.cli.training_options import CheckpointOptions, DescentOptions, InputFormat
from mlmfast.errors import SettingsError

if TYPE_CHECKING:
    from mlmfast.training.distillation.settings import DistillationSettings


@dataclass(frozen=True)
class CorpusOptions:
    """How texts are read and added to."""

    input_format: Annotated[InputFormat, typer.Option(help="Of the texts and the held-out ones.")] = "text"
    field: Annotated[
        str | None, typer.Option(metavar="NAME", help="The text's field or column (jsonl, csv, tsv).")
    ] = None
    on_error: Annotated[
        Literal["raise", "skip"],
        typer.Option(help="For records that cannot be read or are longer than the model takes."),
    ] = "raise"
    corrupted: Annotated[
        int, typer.Option(min=0, metavar="K", help="Also learn K corrupted variants of every text.")
    ] = 0


@dataclass(frozen=True)
class TeacherOptions:
    """The model that is distilled, and its scores."""

    model: Annotated[
        str | None,
        typer.Option(help="The teacher, a folder or a hub id; by default the embedded English model."),
    ] = None
    revision: Annotated[str | None, typer.Option(help="Hub revision: a branch, tag or commit.")] = None
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Also load pickled weights, which can run code.")
    ] = False
    masking: Annotated[str, typer.Option(help="Its own: original, word_l2r or whole_word.")] = "original"
    teacher_precision: Annotated[
        str | None,
        typer.Option(
            help="float32, bf16x3, bf16x4, bfloat16, float16 or int8; by default the fastest that is exact."
        ),
    ] = None
    teacher_scores: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep the teacher's scores here, for other students, too."),
    ] = None
    workers: Annotated[int | None, typer.Option(min=1, help="Of the teacher; by default one per core.")] = (
        None
    )


@dataclass(frozen=True)
class StudentOptions:
    """What the student is."""

    head: Annotated[
        str, typer.Option(help="token: the log-probability of every token; cls: the text's score alone.")
    ] = "token"
    layers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Keep N of the teacher's layers, evenly spread."),
    ] = None
    kept_layers: Annotated[
        str | None, typer.Option(metavar="I,J,...", help="Keep these layers, counted from 0.")
    ] = None
    freeze_embeddings: Annotated[
        bool, typer.Option("--freeze-embeddings", help="Keep the teacher's embeddings as they are.")
    ] = False
    weights: Annotated[str, typer.Option(help="Written as float16 or float32.")] = "float16"
    share_embeddings: Annotated[
        bool,
        typer.Option(
            "--share-embeddings",
            help="Name the embeddings of the teacher's folder beside the output in place of a copy.",
        ),
    ] = False


@dataclass(frozen=True)
class LearningOptions(DescentOptions):
    """How the student learns."""

    steps: Annotated[int | None, typer.Option(min=1, help="Batches; by default 1000.")] = None
    epochs: Annotated[float | None, typer.Option(help="In place of --steps: how often every text comes.")] = (
        None
    )
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens of one step, padding counted.")] = 4096
    learning_rate: Annotated[float, typer.Option(help="At its peak.")] = 3e-4
    sentence_weight: Annotated[
        float, typer.Option(help="Of the squared error of a text's sum beside that of its tokens.")
    ] = 0.1
    huber: Annotated[
        float, typer.Option(help="Error, in standard deviations, from which it counts linearly; inf: never.")
    ] = float("inf")
    patience: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="End after N evaluations without a new best."),
    ] = None


@dataclass(frozen=True)
class TrialOptions:
    """What the finished student is tested on."""

    lists: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="N-best lists: order, WER if they have references."),
    ] = None
    pairs: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Minimal pairs (jsonl): accuracy, decisions kept."),
    ] = None


def distillation_settings(
    corpus: CorpusOptions,
    teacher: TeacherOptions,
    student: StudentOptions,
    learning: LearningOptions,
    checkpoints: CheckpointOptions,
    *,
    steps: int,
) -> DistillationSettings:
    """Raises SettingsError for options that do not fit."""
    from mlmfast.training import ScheduleSettings
    from mlmfast.training.distillation.settings import DistillationSettings, LossSettings, StudentSettings

    return DistillationSettings(
        steps=steps,
        batch_tokens=learning.batch_tokens,
        corrupted=corpus.corrupted,
        masking=teacher.masking,
        precision=learning.precision,
        weight_decay=learning.weight_decay,
        max_gradient_norm=learning.max_gradient_norm,
        evaluate_every=checkpoints.evaluate_every,
        patience=learning.patience,
        checkpoint_every=checkpoints.checkpoint_every,
        seed=learning.seed,
        student=StudentSettings(
            student.head,
            student.layers,
            parsed_layers(student.kept_layers),
            student.freeze_embeddings,
            student.weights,
            student.share_embeddings,
        ),
        loss=LossSettings(learning.sentence_weight, learning.huber),
        schedule=ScheduleSettings(learning.learning_rate, learning.schedule, learning.warmup_steps),
    )


def parsed_layers(given: str | None) -> tuple[int, ...] | None:
    """Raises SettingsError."""
    if given is None:
        return None
    try:
        return tuple(int(number) for number in given.split(","))
    except ValueError as error:
        raise SettingsError(f"--kept-layers {given!r}: expected numbers such as 0,2,5") from error
