"""`mlmfast tune`: the weights that are best for lists with references, and what they gain."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlmfast.cli.files import require_different_files, write_text
from mlmfast.cli.option_groups import EngineOptions, RunOptions, ScoringOptions, grouped
from mlmfast.cli.progress import bar_of
from mlmfast.cli.rescoring_options import (
    CombinationOptions,
    ComparisonOptions,
    ListOptions,
    ModelsOptions,
    ReportFile,
    Source,
    TextOptions,
)
from mlmfast.cli.stopping import SKIPPED_RECORDS, end_on_terminate, say, stop_reported

if TYPE_CHECKING:
    from mlmfast.rescoring.lists import NBestList


@grouped
def tune(
    source: Source,
    *,
    metric: Annotated[str, typer.Option(help="What is tuned for: wer, cer, bleu or chrf.")],
    output: Annotated[Path, typer.Option(metavar="FILE", help="The weights, for `mlmfast rescore`.")],
    feature: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Also weigh a further score that the lists have.")
    ] = None,
    word_bonus: Annotated[bool, typer.Option("--word-bonus", help="Also tune a bonus per word.")] = False,
    allow_negative: Annotated[
        bool, typer.Option("--allow-negative", help="Let the models' weights fall below 0.")
    ] = False,
    folds: Annotated[int, typer.Option(min=2, help="Parts of the cross-fitting.")] = 5,
    runs: Annotated[int, typer.Option(min=1, help="Of the optimiser, with other random numbers.")] = 3,
    restarts: Annotated[int, typer.Option(min=0, help="Random ones, of each run.")] = 5,
    report: ReportFile = None,
    lists: ListOptions,
    models: ModelsOptions,
    scoring: ScoringOptions,
    text: TextOptions,
    combination: CombinationOptions,
    comparison: ComparisonOptions,
    engine: EngineOptions,
    how: RunOptions,
) -> None:
    """Tune weights: scores the lists once, searches, and reports figures of lists not tuned on."""
    from mlmfast.cli.rescoring import ListInput, named_models, open_models
    from mlmfast.cli.rescoring_report import check_report, page_title, write_report
    from mlmfast.cli.rescoring_weights import start_weights
    from mlmfast.cli.tables import tuning_table
    from mlmfast.io.standard_output import require_uncompressed
    from mlmfast.reports.chosen_lists import lean
    from mlmfast.reports.tuning import tuning_report
    from mlmfast.rescoring.metrics import metric_named
    from mlmfast.rescoring.rescorer import Rescorer
    from mlmfast.rescoring.tuned_lists import tune_lists
    from mlmfast.rescoring.tuning import TuningSettings

    end_on_terminate()
    check_report(report, source, output, *lists.references)
    require_uncompressed(output)
    judge = metric_named(metric, recipe=comparison.recipe, tokenize=comparison.tokenize)
    settings = TuningSettings(
        folds=folds,
        runs=runs,
        restarts=restarts,
        num_resamples=comparison.resamples,
        seed=comparison.seed,
        allow_negative=allow_negative,
        speaker=comparison.speaker,
    )
    given = ListInput(source, lists, how.on_error)
    require_different_files(source, str(output))
    named = named_models(models)
    start = start_weights([*named], feature or [], word_bonus, combination)
    given.check_references()
    with ExitStack() as stack:
        language_models = open_models(stack, named, scoring, engine, text)
        rescorer = Rescorer(language_models, start, on_error=how.on_error)
        kept: dict[str, NBestList] = {}
        with bar_of(given.count, "hypotheses", quiet=how.quiet) as bar:

            def counted() -> Iterator[NBestList]:
                for nbest in given:
                    if report is not None and nbest.references:
                        kept[nbest.id] = lean(nbest)
                    yield nbest
                    count = len(nbest.hypotheses)
                    bar.advance(count, count)

            with stop_reported(lambda: f"{rescorer.counts.num_texts:,} hypotheses, nothing kept", "-"):
                tuned = tune_lists(rescorer, counted(), judge, settings)
        write_text(output, tuned.weights.to_json())
        if report is not None:
            made_with = {"lists": source, "format": given.format, "log_base": "e", **rescorer.settings()}
            made_with |= {"metric": judge.settings(), "tuning": asdict(settings)}
            page = tuning_report(
                tuned, kept, language_models, title=page_title("tune", source), made_with=made_with
            )
            write_report(report, page)
    print(tuning_table(tuned.report), end="")
    counts = rescorer.counts
    say(
        f"{counts.num_texts:,} hypotheses scored ({counts.num_errors:,} skipped with an error"
        f"{given.unreadable_said()}), "
        f"{counts.num_rows:,} rows, {counts.num_computed:,} of them computed; weights in {output}",
        how.quiet,
    )
    if counts.num_errors or given.num_unreadable:
        raise typer.Exit(SKIPPED_RECORDS)
