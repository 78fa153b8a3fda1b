"""Options of `mlmfast variants`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import typer


@dataclass(frozen=True)
class WildTypeOptions:
    """Which protein the variants are of."""

    wild_type: Annotated[
        str | None, typer.Option(metavar="FASTA", help="A file with the wild type as its one entry.")
    ] = None
    sequence: Annotated[str | None, typer.Option(metavar="LETTERS", help="The wild type itself.")] = None


@dataclass(frozen=True)
class VariantOptions:
    """What the score of a variant is."""

    offset: Annotated[int, typer.Option(help="The first residue has number OFFSET + 1.")] = 0
    convention: Annotated[
        Literal["wt-marginals", "masked-marginals", "mutant-marginals", "pppl"],
        typer.Option(help="How log-probabilities become a score."),
    ] = "masked-marginals"
    context: Annotated[
        Literal["wild-type", "mask", "mutant"],
        typer.Option(help="What the other mutated positions show under masked-marginals."),
    ] = "wild-type"
    vocab_subset: Annotated[
        Literal["all", "residues"],
        typer.Option(help="residues: probabilities renormalised over the twenty amino acids."),
    ] = "all"
    overlong: Annotated[
        Literal["error", "window"], typer.Option(help="For a wild type longer than the model takes.")
    ] = "error"


@dataclass(frozen=True)
class TableOptions:
    """What is read and written."""

    input_format: Annotated[Literal["csv", "tsv", "text"], typer.Option(help="Of the input.")] = "csv"
    mutant_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the mutations; by default mutant.")
    ] = None
    score_column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Of measurements, for Spearman's correlation; by default DMS_score where there is one.",
        ),
    ] = None
    output_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the scores; by default score.")
    ] = None
