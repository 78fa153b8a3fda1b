"""`mlmfast variants`: mutations of a protein in, scores out."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from mlmfast.cli.files import require_different_files, require_place_for
from mlmfast.cli.option_groups import EngineOptions, OutputOptions, RunOptions, grouped
from mlmfast.cli.progress import bar_of
from mlmfast.cli.stopping import SKIPPED_RECORDS, end_on_terminate, say, stop_reported
from mlmfast.cli.variants_options import TableOptions, VariantOptions, WildTypeOptions
from mlmfast.errors import SettingsError


@grouped
def variants(
    source: Annotated[
        str | None, typer.Argument(metavar="[FILE|-]", help="Variants; - for standard input, the default.")
    ] = None,
    *,
    model: Annotated[
        list[str], typer.Option(help="A folder or a hub id of a protein model; again for each to average.")
    ],
    protein: WildTypeOptions,
    scoring: VariantOptions,
    all_substitutions: Annotated[
        bool, typer.Option("--all", help="Score every substitution: a table of L rows and 20 columns.")
    ] = False,
    heat_map: Annotated[
        Path | None, typer.Option(metavar="PNG", help="With --all: draw the table, too.")
    ] = None,
    tables: TableOptions,
    output_format: Annotated[
        Literal["csv", "tsv", "jsonl"], typer.Option("--format", help="Of the output.")
    ] = "csv",
    engine: EngineOptions,
    out: OutputOptions,
    how: RunOptions,
) -> None:
    """Score protein variants such as A23G or A23G:K45R with masked language models (Meier et al. 2021)."""
    from mlmfast.cli.variants_run import VariantRun, no_table, table_to_score
    from mlmfast.io import open_output
    from mlmfast.proteins import VariantScorer
    from mlmfast.proteins.heat_map import draw_heat_map
    from mlmfast.proteins.output import header_of
    from mlmfast.proteins.records import read_wild_type
    from mlmfast.scorer import load

    end_on_terminate()
    if (protein.wild_type is None) == (protein.sequence is None):
        raise SettingsError("give the wild type once: --wild-type FASTA or --sequence LETTERS")
    if protein.wild_type == "-" and not all_substitutions and source in (None, "-"):
        raise SettingsError("standard input can be read once; name a file for the wild type or the variants")
    if heat_map is not None:
        check_heat_map(heat_map, all_substitutions, protein.wild_type, out.output)
    table = (
        no_table(source, tables)
        if all_substitutions
        else table_to_score(
            source or "-", tables, len(model), output_format, with_errors=how.on_error == "skip"
        )
    )
    for path in (source, protein.wild_type):
        require_different_files(path or "-", out.output)
    sequence = protein.sequence if protein.wild_type is None else read_wild_type(protein.wild_type)
    with ExitStack() as models:
        scorers = [models.enter_context(load(name, **asdict(engine))) for name in model]
        scorer = VariantScorer(scorers, sequence or "", **asdict(scoring))
        run = VariantRun(scorer, table, output_format)
        settings = {
            "environment": engine.environment(),
            "models": [loaded.describe() for loaded in scorers],
            "wild_type": scorer.sequence,
            **asdict(scoring),
            "all": all_substitutions,
            "columns": table.columns,
            "mutant_column": table.mutant_column,
            "format": output_format,
            "input_format": None if all_substitutions else tables.input_format,
            "log_base": "e",
            "scored": "log-probabilities less those of the wild type, the mean over the models",
        }
        header = header_of(table.columns, output_format)
        num_positions = len(scorer.sequence) if all_substitutions else None
        with (
            open_output(out.output, settings=settings, resume=out.resume, header=header) as file,
            bar_of(lambda: num_positions, "variants", quiet=how.quiet) as bar,
        ):
            with stop_reported(lambda: f"{len(run.scores)} records", out.output):
                if all_substitutions:
                    run.score_substitutions(file, bar)
                else:
                    run.score_records(file, bar, on_error=how.on_error)
            summary = run.summary()
            file.finish(summary)
    if heat_map is not None:
        title = f"{scoring.convention}, {', '.join(Path(name).name for name in model)}"
        draw_heat_map(heat_map, scorer.sequence, run.score_table(), offset=scoring.offset, title=title)
    say(f"{out.output} is complete already" if file.already_complete else run.sentence(summary), how.quiet)
    if run.num_skipped:
        raise typer.Exit(SKIPPED_RECORDS)


def check_heat_map(path: Path, all_substitutions: bool, *others: str | None) -> None:
    """Raises what would only come to light after the scoring. others: what the command reads or writes."""
    from mlmfast.extras import require

    if not all_substitutions:
        raise SettingsError("--heat-map draws the table of all substitutions; add --all")
    if path.suffix.lower() != ".png":
        raise SettingsError(f"--heat-map {path}: a PNG is drawn; expected a name that ends with .png")
    require_place_for("--heat-map", path, *others)
    require("matplotlib", extra="plot", purpose="--heat-map")
