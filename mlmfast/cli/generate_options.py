"""Options of `mlmfast generate`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import typer

from mlmfast.cli.generation_options import InputFormat
from mlmfast.errors import SettingsError


@dataclass(frozen=True)
class SeedTextOptions:
    """Which texts chains start from."""

    text: Annotated[
        str | None,
        typer.Option(help="Start from this text; the model's mask token in it marks free positions."),
    ] = None
    input_format: Annotated[InputFormat, typer.Option(help="Of the input.")] = "text"
    field: Annotated[
        str | None, typer.Option(metavar="NAME", help="The text's field or column (jsonl, csv, tsv).")
    ] = None


@dataclass(frozen=True)
class StartOptions:
    """What is free, and what it holds before the first step; as StartSettings."""

    length: Annotated[
        str | None,
        typer.Option(
            metavar="L|L-M",
            help="Tokens of a text, drawn uniformly from a range; masks are added to reach it.",
        ),
    ] = None
    positions: Annotated[
        str | None,
        typer.Option(metavar="3-10,15", help="These tokens are free, counted from 1; the others stay."),
    ] = None
    fixed_phrases: Annotated[
        list[str], typer.Option("--fixed-phrase", metavar="PHRASE", help="It stays; again for more.")
    ] = field(default_factory=list)
    leader: Annotated[int, typer.Option(min=0, help="This many first tokens stay.")] = 0
    init: Annotated[
        Literal["mask", "random", "text"] | None,
        typer.Option(
            help="What free positions hold at first: masks, random allowed tokens, or the text's own (the "
            "default where all of a text is free)."
        ),
    ] = None
    words: Annotated[
        list[str],
        typer.Option("--word", metavar="WORD", help="Put at random free positions at first; again for more."),
    ] = field(default_factory=list)


@dataclass(frozen=True)
class SamplingOptions:
    """How chains are sampled; as GenerationSettings."""

    sampler: Annotated[
        Literal["gibbs", "sequential", "parallel", "block", "mask_predict", "mh"],
        typer.Option(help="Which positions are sampled in a step, and how."),
    ] = "gibbs"
    sweeps: Annotated[
        int | None, typer.Option(min=1, help="Passes over all free positions; 10 if --steps is not given.")
    ] = None
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of a chain, instead of --sweeps.")] = None
    block_size: Annotated[
        int | None, typer.Option(min=1, help="Positions of a step of block; 3 if not given.")
    ] = None
    mask_sampled: Annotated[
        bool,
        typer.Option(
            "--mask-sampled/--no-mask-sampled",
            help="Whether positions are masked while they are sampled, or see their own token.",
        ),
    ] = True
    temperature: Annotated[float, typer.Option(help="Of the distribution that is sampled.")] = 1.0
    top_k: Annotated[int | None, typer.Option(min=1, help="Sample from the K most probable tokens.")] = None
    top_p: Annotated[
        float | None, typer.Option(help="Sample from the fewest tokens that have probability P together.")
    ] = None
    greedy: Annotated[
        bool | None,
        typer.Option(
            "--greedy/--no-greedy", help="Take the most probable token; the default of mask_predict alone."
        ),
    ] = None
    burn_in: Annotated[
        int, typer.Option(min=0, help="First steps, in which the full distribution is sampled.")
    ] = 0
    energy: Annotated[
        Literal["raw", "norm"] | None,
        typer.Option(help="Compute the energy of what is written; the target of mh (by default raw)."),
    ] = None
    record_every: Annotated[
        int | None, typer.Option(min=1, help="Steps between the states that are written (jsonl).")
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Of all random numbers.")] = 0


@dataclass(frozen=True)
class AlphabetOptions:
    """Which tokens may be sampled."""

    allow: Annotated[
        list[str],
        typer.Option(
            metavar="TOKEN",
            help="Sample this token, as the vocabulary writes it (of a protein model letters, or residues: "
            "the twenty amino acids); again for more. By default all, of a protein model the residues.",
        ),
    ] = field(default_factory=list)
    allow_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="More tokens to allow, one on a line.")
    ] = None
    forbid: Annotated[
        list[str], typer.Option(metavar="TOKEN", help="Do not sample this token; again for more.")
    ] = field(default_factory=list)
    forbid_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="More tokens to forbid, one on a line.")
    ] = None

    def allowed(self) -> list[str]:
        """Raises SettingsError for a file that cannot be read."""
        return [*self.allow, *_lines_of(self.allow_file, "--allow-file")]

    def forbidden(self) -> list[str]:
        """As `allowed`."""
        return [*self.forbid, *_lines_of(self.forbid_file, "--forbid-file")]


def _lines_of(path: Path | None, option: str) -> list[str]:
    if path is None:
        return []
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{option} {path}: cannot be read as UTF-8 text ({error})") from error
    tokens = [line.removesuffix("\r") for line in lines]
    if not any(tokens):
        raise SettingsError(f"{option} {path}: there is no token in it; write one on each line")
    return [token for token in tokens if token]
