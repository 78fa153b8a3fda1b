"""The command line: `mlmfast score`, `rescore`, `tune`, `eval`, `eval-generation`, `generate`, `finetune`,
`distill`, `export`, `variants`, `info`.

Exit status: 0 done; 1 an error; 2 options that are wrong; 3 done, but some records were skipped;
130 interrupted, 143 terminated (what was finished is in the output).
"""

from __future__ import annotations

import logging
import sys

import typer

import mlmfast
from mlmfast.cli.distill import distill
from mlmfast.cli.eval_generation import eval_generation
from mlmfast.cli.evaluate import evaluate
from mlmfast.cli.export import export
from mlmfast.cli.finetune import finetune
from mlmfast.cli.generate import generate
from mlmfast.cli.info import info
from mlmfast.cli.rescore import rescore
from mlmfast.cli.score import score
from mlmfast.cli.tune import tune
from mlmfast.cli.variants import variants
from mlmfast.errors import MlmfastError, SettingsError

app = typer.Typer(
    name="mlmfast",
    help="Score text with masked language models: fast, exact, resumable.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(score)
app.command()(rescore)
app.command()(tune)
app.command("eval")(evaluate)
app.command()(generate)
app.command("eval-generation")(eval_generation)
app.command()(finetune)
app.command()(distill)
app.command()(export)
app.command()(variants)
app.command()(info)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(mlmfast.__version__)
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
    verbose: bool = typer.Option(False, "--verbose", help="Log what is chosen automatically, on stderr."),
) -> None:
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(name)s: %(message)s")


def main() -> None:
    """Run the command line; errors of ours become one line on stderr and an exit status."""
    try:
        app()
    except KeyboardInterrupt:
        print("mlmfast: interrupted", file=sys.stderr)
        sys.exit(130)
    except MlmfastError as error:
        print(f"mlmfast: error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, SettingsError) else 1)
