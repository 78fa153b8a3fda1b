"""The options of `mlmfast eval-generation`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import typer

InputFormat = Literal["text", "jsonl", "csv", "tsv", "fasta"]


@dataclass(frozen=True)
class ReferenceOptions:
    """What samples are compared with."""

    references: Annotated[
        list[str],
        typer.Option(metavar="FILE", help="References of every sample, pooled; again for further files."),
    ] = field(default_factory=list)
    aligned_references: Annotated[
        list[str],
        typer.Option(
            metavar="FILE", help="A reference per sample, in order, for BLEU by sacrebleu; again for more."
        ),
    ] = field(default_factory=list)
    reference_format: Annotated[
        InputFormat | None, typer.Option(help="Of the references; by default that of the samples.")
    ] = None


@dataclass(frozen=True)
class NgramOptions:
    """What n-grams are made of."""

    unit: Annotated[
        Literal["word", "character", "token"] | None,
        typer.Option(
            help="What n-grams are made of: white-space words, characters (the default for fasta), or "
            "tokens of --model."
        ),
    ] = None
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Compare in lower case.")] = False
    max_order: Annotated[int, typer.Option(min=1, help="The longest n-grams.")] = 4


@dataclass(frozen=True)
class TrailOptions:
    """How chains went."""

    trail: Annotated[
        str | None, typer.Option(metavar="FILE", help="The trail of a sampler: its chains, step by step.")
    ] = None
    burn_in: Annotated[int, typer.Option(min=0, help="The first step of a chain that counts.")] = 0
    lags: Annotated[int, typer.Option(min=0, help="Autocorrelations written per chain.")] = 10
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Plot energy against step: .png, .svg or .pdf.")
    ] = None
