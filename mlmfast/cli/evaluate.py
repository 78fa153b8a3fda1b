"""`mlmfast eval`: error rates, BLEU and chrF of lists or plain text, oracle, significance."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Literal

import typer

from mlmfast.cli.option_groups import grouped
from mlmfast.cli.rescoring_options import ComparisonOptions, ListOptions, ReportFile, Source
from mlmfast.cli.stopping import SKIPPED_RECORDS
from mlmfast.errors import SettingsError


@grouped
def evaluate(
    source: Source,
    *,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", help="wer (default), cer, bleu or chrf; again for each further one."),
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="LISTS", help="Another system's, for the significance of the gain.")
    ] = None,
    against_format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="Of the other lists; by default what they look like.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All figures as JSON.")] = False,
    on_error: Annotated[
        Literal["raise", "skip"], typer.Option(help="For parts of the lists that cannot be read.")
    ] = "raise",
    report: ReportFile = None,
    lists: ListOptions,
    comparison: ComparisonOptions,
) -> None:
    """Evaluate lists, of which the first hypothesis counts, or text (--format text or keyed)."""
    from mlmfast.cli.rescoring import ListInput
    from mlmfast.cli.rescoring_report import check_report, page_title, write_report
    from mlmfast.cli.tables import evaluation_table
    from mlmfast.io.json_text import to_json
    from mlmfast.io.lines import is_stream
    from mlmfast.reports.evaluation import evaluation_report
    from mlmfast.rescoring import evaluation
    from mlmfast.rescoring.metrics import metric_named

    check_report(report, source, against, *lists.references)
    metrics = [
        metric_named(name, recipe=comparison.recipe, tokenize=comparison.tokenize)
        for name in dict.fromkeys(metric or ["wer"])
    ]
    inputs = [ListInput(source, lists, on_error)]
    if against is not None:
        if any(is_stream(path) for path in lists.references):
            raise SettingsError("references are read for both systems, so not from a pipe; name a file")
        inputs.append(ListInput(against, replace(lists, format=against_format), on_error))
    systems = [evaluation.read_corpora(lists, metrics) for lists in inputs]
    evaluations = [
        evaluation.evaluate(
            systems[0],
            judge,
            against=systems[1] if against is not None else None,
            num_resamples=comparison.resamples,
            seed=comparison.seed,
            speaker=comparison.speaker,
        )
        for judge in metrics
    ]
    if report is not None:
        made_with = {"lists": source, "format": inputs[0].format, "against": against}
        page = evaluation_report(
            evaluations,
            metrics[0],
            systems[0],
            systems[1] if against is not None else None,
            title=page_title("eval", source),
            made_with={**made_with, "metrics": [judge.settings() for judge in metrics]},
        )
        write_report(report, page)
    if as_json:
        print(to_json([asdict(found) for found in evaluations], indented=True))
    else:
        print(evaluation_table(evaluations), end="")
    if any(given.num_unreadable for given in inputs):
        raise typer.Exit(SKIPPED_RECORDS)
