"""The options that `rescore`, `tune` and `eval` share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import typer

Source = Annotated[
    str, typer.Argument(metavar="LISTS|-", help="N-best lists, a file or folder; - for standard input.")
]
"""The argument of all three."""

ReportFile = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE.html", help="Also a page that shows what was found."),
]


@dataclass(frozen=True)
class ListOptions:
    """How lists and their references are read."""

    format: Annotated[
        str | None, typer.Option("--format", help="Of the lists; by default what they look like.")
    ] = None
    references: Annotated[
        list[Path],
        typer.Option(metavar="FILE", help="References; again for each further reference of all lists."),
    ] = field(default_factory=list)
    reference_style: Annotated[
        Literal["lines", "keyed"] | None,
        typer.Option(help="A reference per line, or 'id reference'; by default what suits the format."),
    ] = None
    nbest: Annotated[int | None, typer.Option(min=1, help="Hypotheses taken from a lattice (htk).")] = None
    lm_scale: Annotated[
        float | None, typer.Option(help="Of the decoder's language model (kaldi, srilm, htk).")
    ] = None
    length_power: Annotated[
        float | None, typer.Option(help="Of the decoder's length normalisation (moses, fairseq).")
    ] = None
    manifest: Annotated[Path | None, typer.Option(metavar="FILE", help="The manifest (nemo).")] = None


@dataclass(frozen=True)
class ModelsOptions:
    """Which language models score."""

    model: Annotated[
        list[str],
        typer.Option(
            "--model",
            help="A folder or a hub id, again for each further model; by default the embedded English "
            "model; none: features of the lists alone.",
        ),
    ] = field(default_factory=list)
    name: Annotated[
        list[str],
        typer.Option("--name", help="Of a model's score; by default mlm, or mlm1, mlm2, ..."),
    ] = field(default_factory=list)


@dataclass(frozen=True)
class CascadeOptions:
    """A student orders each list, the model decides among the best."""

    cascade: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="K", help="Exact scores for the K best of each list alone, as a student orders it."
        ),
    ] = None
    cascade_model: Annotated[
        str | None,
        typer.Option(
            metavar="STUDENT",
            help="The student, a distilled model; by default the embedded model's, if that is the model.",
        ),
    ] = None


@dataclass(frozen=True)
class TextOptions:
    """What is done to a hypothesis before it is scored; the text written stays as it is."""

    join_bpe: Annotated[
        bool, typer.Option("--join-bpe", help="Join subwords that end with @@ to what follows.")
    ] = False
    word_map: Annotated[
        Path | None,
        typer.Option("--map", metavar="FILE", help="Replace words, by lines of WORD<TAB>REPLACEMENT."),
    ] = None
    detok: Annotated[
        str | None, typer.Option(metavar="LANGUAGE", help="Moses detokenisation: en, de, ...")
    ] = None
    strip_punct: Annotated[
        bool, typer.Option("--strip-punct", help="Drop punctuation at the ends of words.")
    ] = False
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Lower-case all.")] = False
    capitalize: Annotated[
        Literal["first", "python"] | None,
        typer.Option(help="A capital first letter; python also lower-cases the rest."),
    ] = None
    append_period: Annotated[
        bool, typer.Option("--append-period", help="End with a full stop, unless with .!? already.")
    ] = False


@dataclass(frozen=True)
class CombinationOptions:
    """How scores are added up."""

    normalize: Annotated[
        str,
        typer.Option(help="Divide the models' scores by their tokens: none, tokens or gnmt:ALPHA (0 to 10)."),
    ] = "none"
    normalize_first_pass: Annotated[
        str, typer.Option(help="Divide the first-pass scores by their words, likewise.")
    ] = "none"
    missing: Annotated[
        Literal["first_pass_rank", "last"],
        typer.Option(help="Where hypotheses without a score go (empty ones, skipped ones)."),
    ] = "first_pass_rank"


@dataclass(frozen=True)
class ComparisonOptions:
    """How hypotheses are compared with references, and systems with each other."""

    recipe: Annotated[
        str,
        typer.Option(
            help="Makes hypothesis and reference alike: none, lowercase, strip-punctuation, "
            "lowercase-strip-punctuation, whisper-basic."
        ),
    ] = "none"
    tokenize: Annotated[str, typer.Option(help="sacrebleu's tokeniser, for BLEU.")] = "13a"
    resamples: Annotated[int, typer.Option(min=1, help="Of the bootstrap.")] = 1000
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0
    speaker: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX",
            help="Its group (...) is an id's speaker, whose lists stay together; by default what is before "
            "the first - or _, if that makes at least 10.",
        ),
    ] = None
