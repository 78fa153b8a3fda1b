"""`mlmfast finetune`: a masked language model adapted to texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlmfast.cli.files import require_held_out_apart
from mlmfast.cli.option_groups import grouped
from mlmfast.cli.stopping import end_on_terminate, say, stop_reported
from mlmfast.cli.training_options import (
    CheckpointOptions,
    DynamicMaskingOptions,
    LossOptions,
    OptimiserOptions,
    TextInputOptions,
    training_settings,
)

if TYPE_CHECKING:
    from mlmfast.cli.training_progress import TrainingProgress
    from mlmfast.io import InputRecord


@grouped
def finetune(
    texts: Annotated[list[str], typer.Argument(metavar="TEXTS...", help="Files of texts to train on.")],
    *,
    output: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the tuned model.")],
    held_out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Texts to evaluate with, none of them trained on.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A folder or a hub id; by default the embedded English model.")
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Hub revision: a branch, tag or commit.")] = None,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Also load pickled weights, which can run code.")
    ] = False,
    text_input: TextInputOptions,
    loss: LossOptions,
    masking: DynamicMaskingOptions,
    optimiser: OptimiserOptions,
    checkpoints: CheckpointOptions,
) -> None:
    """Adapt a masked language model to texts; the result is a model folder as any other."""
    from mlmfast.extras import require

    for package in ("torch", "transformers"):
        require(package, extra="torch", purpose="finetune")
    import torch

    from mlmfast.cli.training_progress import TrainingProgress, evaluation_said
    from mlmfast.io import read_records
    from mlmfast.scorer import open_model
    from mlmfast.training import RowSettings, TrainingRows, training_rows
    from mlmfast.training.run import finetune as run

    end_on_terminate()
    settings = training_settings(loss, masking, optimiser, checkpoints)
    require_held_out_apart(texts, held_out)
    if optimiser.threads is not None:
        torch.set_num_threads(optimiser.threads)
    files = open_model(model, revision=revision, allow_pickle=allow_pickle)
    row_settings = RowSettings(text_input.overlong, text_input.block_tokens)

    def rows_of(sources: list[str]) -> TrainingRows:
        def records() -> Iterator[tuple[str, InputRecord]]:
            for source in sources:
                for record in read_records(
                    source, input_format=text_input.input_format, field=text_input.field
                ):
                    yield source, record

        return training_rows(
            records(),
            files.tokenizer,
            files.config.max_length,
            row_settings,
            where=", ".join(sources),
            whole_word=settings.masking.whole_word,
        )

    rows = rows_of(texts)
    held_out_rows = None if held_out is None else rows_of([held_out])
    say(
        f"{rows.num_texts:,} texts ({rows.num_empty:,} empty), {rows.num_rows:,} rows, {rows.num_tokens:,} "
        f"tokens ({rows.num_unknown:,} unknown); "
        f"{settings.steps * settings.batch_size / rows.num_rows:.2f} epochs",
        checkpoints.quiet,
    )
    with (
        TrainingProgress(settings.steps, quiet=checkpoints.quiet) as progress,
        stop_reported(lambda: _done(progress), str(output)),
    ):
        summary = run(
            files,
            rows,
            held_out_rows,
            settings,
            output,
            progress,
            device=optimiser.device,
            resume=checkpoints.resume,
        )
    said = f"{output} {'holds the tuned model' if progress.has_run else 'is complete already'}"
    if summary["held_out_after"] is not None:
        said += (
            f"; held-out before: {evaluation_said(summary['held_out_before'])}; "
            f"after: {evaluation_said(summary['held_out_after'])}"
        )
    say(said, checkpoints.quiet)


def _done(progress: TrainingProgress) -> str:
    saved = f"a checkpoint of step {progress.num_saved:,}" if progress.num_saved else "no checkpoint yet"
    return f"step {progress.num_done:,}, with {saved}"
