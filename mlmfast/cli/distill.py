"""`mlmfast distill`: a student that scores a text in one unmasked pass."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlmfast.cli.distillation_options import (
    CorpusOptions,
    LearningOptions,
    StudentOptions,
    TeacherOptions,
    TrialOptions,
    distillation_settings,
)
from mlmfast.cli.files import require_held_out_apart
from mlmfast.cli.option_groups import grouped
from mlmfast.cli.rescoring_options import ListOptions
from mlmfast.cli.stopping import SKIPPED_RECORDS, end_on_terminate, say, stop_reported
from mlmfast.cli.training_options import CheckpointOptions
from mlmfast.errors import SettingsError

if TYPE_CHECKING:
    from mlmfast.cli.distillation_progress import DistillationProgress
    from mlmfast.engines.base import ModelFiles
    from mlmfast.io import InputRecord
    from mlmfast.training.distillation.corpus import Corpus, TextCounts
    from mlmfast.training.distillation.report import Trials


DEFAULT_STEPS = 1000


@grouped
def distill(
    texts: Annotated[list[str], typer.Argument(metavar="TEXTS...", help="Files of texts to learn from.")],
    *,
    output: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the student.")],
    held_out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Texts to evaluate with, none of them learnt from.")
    ] = None,
    teacher: TeacherOptions,
    student: StudentOptions,
    corpus: CorpusOptions,
    learning: LearningOptions,
    trials: TrialOptions,
    lists: ListOptions,
    checkpoints: CheckpointOptions,
) -> None:
    """Distil a masked model into a student that needs one pass; the result is a model folder."""
    from mlmfast.extras import require

    for package in ("torch", "transformers"):
        require(package, extra="torch", purpose="distill")
    import torch

    from mlmfast.cli.distillation_progress import DistillationProgress, report_lines
    from mlmfast.scorer import load
    from mlmfast.training.distillation.corpus import TextCounts
    from mlmfast.training.distillation.run import DistillationTexts
    from mlmfast.training.distillation.run import distill as run

    end_on_terminate()
    require_held_out_apart(texts, held_out)
    if learning.threads is not None:
        torch.set_num_threads(learning.threads)
    with load(
        teacher.model,
        precision=teacher.teacher_precision,
        device=learning.device,
        workers=teacher.workers,
        revision=teacher.revision,
        allow_pickle=teacher.allow_pickle,
    ) as scorer:
        files = scorer.files
        train, counts = read(texts, corpus, files, learning.seed)
        say(said(counts, train), checkpoints.quiet)
        held, held_counts = None, TextCounts()
        if held_out is not None:
            held, held_counts = read([held_out], corpus, files, learning.seed)
        num_clean = 0 if held is None else held.num_texts - held_counts.num_variants
        steps = num_steps(learning, train)
        settings = distillation_settings(corpus, teacher, student, learning, checkpoints, steps=steps)
        with (
            DistillationProgress(steps, quiet=checkpoints.quiet) as progress,
            stop_reported(lambda: done(progress), str(output)),
        ):
            summary = run(
                scorer,
                DistillationTexts(train, held, num_clean, trials_of(trials, lists, files)),
                settings,
                output,
                progress,
                teacher_folder=teacher.teacher_scores,
                device=learning.device,
                resume=checkpoints.resume,
            )
    say(f"{output} {'holds the student' if progress.has_run else 'is complete already'}", checkpoints.quiet)
    for line in report_lines(summary):
        say(line, checkpoints.quiet)
    if counts.num_skipped or held_counts.num_skipped:
        raise typer.Exit(SKIPPED_RECORDS)


def read(
    sources: list[str], corpus: CorpusOptions, files: ModelFiles, seed: int
) -> tuple[Corpus, TextCounts]:
    """The texts of some files and corrupted variants of them."""
    from mlmfast.io import read_records
    from mlmfast.training.distillation.corpus import read_corpus, with_corrupted

    def records() -> Iterator[tuple[str, InputRecord]]:
        for source in sources:
            for record in read_records(source, input_format=corpus.input_format, field=corpus.field):
                yield source, record

    max_length = files.config.max_length
    clean, counts = read_corpus(
        records(), files.tokenizer, max_length, where=", ".join(sources), on_error=corpus.on_error
    )
    return with_corrupted(clean, counts, corpus.corrupted, seed, files.tokenizer, max_length)


def trials_of(trials: TrialOptions, lists: ListOptions, files: ModelFiles) -> Trials:
    """Raises InputError; MissingExtraError for error rates without the `nbest` extra."""
    from mlmfast.cli.rescoring import ListInput
    from mlmfast.extras import require
    from mlmfast.training.distillation.nbest import NBestLists
    from mlmfast.training.distillation.pairs import read_pairs
    from mlmfast.training.distillation.report import Trials

    found = None
    if trials.lists is not None:
        found = NBestLists.of(ListInput(trials.lists, lists, "raise"))
        if found.has_references:
            require("rapidfuzz", extra="nbest", purpose="the word error rate of --lists")
    elif lists != ListOptions():
        raise SettingsError("options of n-best lists came, but no lists; give --lists FILE")
    pairs = None if trials.pairs is None else read_pairs(trials.pairs)
    return Trials.of(found, pairs, files.tokenizer, files.config.max_length)


def num_steps(learning: LearningOptions, train: Corpus) -> int:
    """Raises SettingsError."""
    from mlmfast.training.distillation.buckets import Buckets

    if learning.epochs is None:
        return learning.steps or DEFAULT_STEPS
    if learning.steps is not None:
        raise SettingsError("--steps and --epochs both say how long to learn; leave one out")
    if not 0 < learning.epochs < math.inf:
        raise SettingsError(f"--epochs {learning.epochs}: expected a number above 0")
    return math.ceil(
        learning.epochs * Buckets(train.lengths, learning.batch_tokens, learning.seed).num_batches
    )


def said(counts: TextCounts, train: Corpus) -> str:
    variants = f", {counts.num_variants_left_out:,} variants left out" if counts.num_variants_left_out else ""
    return (
        f"{counts.num_texts:,} texts ({counts.num_empty:,} empty, {counts.num_overlong:,} too long, "
        f"{counts.num_unreadable:,} unreadable), with {counts.num_variants:,} corrupted ones{variants}: "
        f"{int(train.num_tokens.sum()):,} tokens"
    )


def done(progress: DistillationProgress) -> str:
    if not progress.has_run:
        return f"{progress.num_scored:,} texts scored by the teacher"
    saved = f"a checkpoint of step {progress.num_saved:,}" if progress.num_saved else "no checkpoint yet"
    return f"step {progress.num_done:,}, with {saved}"
