"""`mlmfast score`: lines in, log-probabilities out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from mlmfast.cli.files import require_different_files
from mlmfast.cli.option_groups import EngineOptions, OutputOptions, RunOptions, ScoringOptions, grouped
from mlmfast.cli.progress import progress_bar
from mlmfast.cli.stopping import SKIPPED_RECORDS, end_on_terminate, say, stop_reported
from mlmfast.errors import SettingsError
from mlmfast.types import JsonRecord

InputFormat = Literal["text", "jsonl", "csv", "tsv", "fasta"]


@grouped
def score(
    source: Annotated[str, typer.Argument(metavar="[FILE|-]", help="Input; - for standard input.")] = "-",
    *,
    model: Annotated[
        str | None, typer.Option(help="A folder or a hub id; by default the embedded English model.")
    ] = None,
    per: Annotated[Literal["text", "word", "token"], typer.Option(help="What is reported.")] = "text",
    output_format: Annotated[
        Literal["jsonl", "tsv"], typer.Option("--format", help="Of the output.")
    ] = "jsonl",
    input_format: Annotated[InputFormat, typer.Option(help="Of the input.")] = "text",
    field: Annotated[
        str | None, typer.Option(metavar="NAME", help="The text's field or column (jsonl, csv, tsv).")
    ] = None,
    rank: Annotated[bool, typer.Option("--rank", help="Add each token's rank (per token).")] = False,
    entropy: Annotated[bool, typer.Option("--entropy", help="Add each place's entropy (per token).")] = False,
    top_k: Annotated[int, typer.Option(min=0, help="Add the K most probable tokens (per token).")] = 0,
    scoring: ScoringOptions,
    engine: EngineOptions,
    out: OutputOptions,
    how: RunOptions,
) -> None:
    """Score texts with a masked language model: natural-log probabilities, one record per input record."""
    from mlmfast.cli.run import Report, run
    from mlmfast.io import header_line, open_output, read_records
    from mlmfast.models import embedded_for
    from mlmfast.scorer import load

    end_on_terminate()
    records = read_records(source, input_format=input_format, field=field)
    require_different_files(source, out.output)
    options: JsonRecord = {**asdict(scoring), "rank": rank, "entropy": entropy, "top_k": top_k}
    if per != "token" and (rank or entropy or top_k):
        raise SettingsError("--rank, --entropy and --top-k are reported per token; add --per token")
    with load(embedded_for(model, scoring.masking), **asdict(engine)) as scorer:
        options["masking"] = scoring.masking or scorer.default_masking
        head = scorer.files.config.student_head
        if head == "cls" and per != "text":
            raise SettingsError(f"--per {per}: a student with head cls has a score for the whole text alone")
        # Wrong options are refused before an output from an earlier run is touched.
        scorer.score_iter((), on_error=how.on_error, **options)
        settings = {
            "environment": engine.environment(),
            **scorer.describe(),
            **options,
            "per": per,
            "format": output_format,
            "input_format": input_format,
            "field": field,
            "log_base": "e",
            "scored": "the text as a whole"
            if head == "cls"
            else "all tokens but special ones"
            + (", and the one that ends the text" if scoring.score_eos else ""),
        }
        report = Report(per, output_format)
        header = header_line(per=per, format=output_format)
        with (
            open_output(out.output, settings=settings, resume=out.resume, header=header) as file,
            progress_bar(source, input_format, quiet=how.quiet) as bar,
        ):
            with stop_reported(lambda: f"{report.totals.num_texts} texts", out.output):
                run(scorer, records, file, bar, report, on_error=how.on_error, options=options)
            file.finish(report.summary())
    say(f"{out.output} is complete already" if file.already_complete else report.sentence(), how.quiet)
    if report.totals.num_errors:
        raise typer.Exit(SKIPPED_RECORDS)
