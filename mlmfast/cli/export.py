"""`mlmfast export`: a model as an ONNX graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from mlmfast.cli.stopping import end_on_terminate
from mlmfast.types import JsonRecord


def export(
    *,
    kind: Annotated[
        Literal["single-pass", "masked", "pll"],
        typer.Option(help="A student's scores; rows and targets; a sentence's pseudo-log-likelihood."),
    ],
    output: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the graph.")],
    model: Annotated[
        str | None,
        typer.Option(help="A folder or a hub id; by default the embedded English model, or its student."),
    ] = None,
    precision: Annotated[
        Literal["float32", "float16", "int8"],
        typer.Option(help="Of the graph; float16 is for GPUs, int8 for CPUs."),
    ] = "float32",
    revision: Annotated[str | None, typer.Option(help="Hub revision: a branch, tag or commit.")] = None,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Also load pickled weights, which can run code.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing of what was written.")] = False,
) -> None:
    """Write a model as an ONNX graph, checked against the model; any runtime can embed it."""
    from mlmfast.export import export_model

    end_on_terminate()
    values = export_model(
        model,
        kind=kind,
        output=output,
        precision=precision,
        revision=revision,
        allow_pickle=allow_pickle,
    )
    if not quiet:
        typer.echo(_said(output, values))


def _said(output: Path, values: JsonRecord) -> str:
    """What was written, and how far it is from the model."""
    errors = "; ".join(
        f"{origin} texts: off by {found['mean']:.1e} nats in the mean, {found['worst']:.1e} at worst, of "
        f"{found['num_values']:,} values"
        for origin, found in values["agreement"].items()
    )
    return f"{output}: {values['kind']} graph of {values['source']['model']}, {values['precision']}; {errors}"
