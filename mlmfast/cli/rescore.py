"""`mlmfast rescore`: n-best lists in, n-best lists in a better order out."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from mlmfast.cli.files import require_different_files
from mlmfast.cli.option_groups import EngineOptions, OutputOptions, RunOptions, ScoringOptions, grouped
from mlmfast.cli.progress import bar_of
from mlmfast.cli.rescoring_options import (
    CascadeOptions,
    CombinationOptions,
    ComparisonOptions,
    ListOptions,
    ModelsOptions,
    ReportFile,
    Source,
    TextOptions,
)
from mlmfast.cli.stopping import SKIPPED_RECORDS, end_on_terminate, say, stop_reported
from mlmfast.errors import SettingsError

Formula = Literal["mlm-scoring", "fairseq-mlm-scoring"]


@grouped
def rescore(
    source: Source,
    *,
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="As `mlmfast tune` writes them.")
    ] = None,
    lm_weight: Annotated[
        list[float] | None,
        typer.Option(metavar="W", help="Of a model's score; again for each further model."),
    ] = None,
    formula: Annotated[
        Formula | None,
        typer.Option(
            help="first pass + W * model (mlm-scoring, the default), or (1 - W) * first pass + W * model."
        ),
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=W", help="Weight of a further score that the lists have."),
    ] = None,
    word_bonus: Annotated[float, typer.Option(metavar="W", help="Added for each word.")] = 0.0,
    lazy: Annotated[
        bool, typer.Option("--lazy", help="Only the best hypothesis, from as few rows as prove it.")
    ] = False,
    report: ReportFile = None,
    metric: Annotated[
        str | None, typer.Option(help="Of the report, by the lists' references: wer (default), cer, ...")
    ] = None,
    lists: ListOptions,
    models: ModelsOptions,
    cascading: CascadeOptions,
    scoring: ScoringOptions,
    text: TextOptions,
    combination: CombinationOptions,
    comparison: ComparisonOptions,
    engine: EngineOptions,
    out: OutputOptions,
    how: RunOptions,
) -> None:
    """Rescore n-best lists: they come out in their format, in the new order, with the new scores."""
    from mlmfast.cli.rescoring import ListInput, named_models, open_cascade, open_models
    from mlmfast.cli.rescoring_report import check_report, page_title, write_report
    from mlmfast.cli.rescoring_run import RescoringRun
    from mlmfast.cli.rescoring_weights import chosen_weights, require_matching
    from mlmfast.reports.rescored import RescoredLists
    from mlmfast.rescoring.formats import open_lists
    from mlmfast.rescoring.metrics import metric_named
    from mlmfast.rescoring.rescorer import Rescorer
    from mlmfast.rescoring.weights import read_weights

    end_on_terminate()
    check_report(report, source, out.output, weights, *lists.references)
    if report is None and (metric is not None or comparison != ComparisonOptions()):
        raise SettingsError("--metric, and how it compares, are for --report; name one, or leave them out")
    if report is not None and out.resume:
        raise SettingsError(
            "--report shows a whole run, not the rest of one; leave it out, and compare the output with its "
            "input by `mlmfast eval OUTPUT --against LISTS --report FILE.html`"
        )
    if lazy and cascading.cascade is not None:
        raise SettingsError("--lazy and --cascade both choose which rows are computed; leave one out")
    judge = metric_named(metric or "wer", recipe=comparison.recipe, tokenize=comparison.tokenize)
    given = ListInput(source, lists, how.on_error)
    require_different_files(source, out.output)
    named = named_models(models)
    if weights is None:
        chosen = chosen_weights(
            [*named], lm_weight or [], formula or "mlm-scoring", feature or [], word_bonus, combination
        )
    elif lm_weight or formula or feature or word_bonus or combination != CombinationOptions():
        raise SettingsError("--weights has all weights and normalisations in it; leave the others out")
    else:
        chosen = read_weights(weights)
    given.check_references()
    with ExitStack() as stack:
        language_models = open_models(stack, named, scoring, engine, text)
        rescorer = Rescorer(language_models, chosen, on_error=how.on_error)
        if weights is not None:
            require_matching(chosen, rescorer, where=str(weights))
        kept = None if report is None else RescoredLists(judge)
        cascade = open_cascade(stack, cascading, named, scoring, engine, text)
        run = RescoringRun(rescorer, given, lazy=lazy, cascade=cascade, kept=kept)
        settings = {
            "environment": engine.environment(),
            "models": {model.name: model.settings() for model in language_models},
            "weights": rescorer.weights.settings(),
            "lazy": lazy,
            **({} if cascade is None else {"cascade": cascade.settings()}),
            "format": given.format,
            "log_base": "e",
        }
        with (
            open_lists(
                out.output,
                given.format,
                settings=settings,
                added=(*named, *([] if cascade is None else [cascade.student.name])),
                source=source,
                resume=out.resume,
            ) as file,
            bar_of(given.count, "hypotheses", quiet=how.quiet) as bar,
        ):
            with stop_reported(lambda: f"{run.totals.num_lists} lists", out.output):
                run.through(file, bar)
            file.finish(run.summary())
        if report is not None and kept is not None:
            page = kept.report(
                rescorer.weights,
                language_models,
                num_resamples=comparison.resamples,
                seed=comparison.seed,
                speaker=comparison.speaker,
                title=page_title("rescore", source),
                made_with={"lists": source, **settings, "metric": judge.settings()},
            )
            write_report(report, page)
    say(f"{out.output} is complete already" if file.already_complete else run.sentence(), how.quiet)
    if run.totals.num_errors or given.num_unreadable:
        raise typer.Exit(SKIPPED_RECORDS)
