"""`mlmfast score`: lines in, log-probabilities out."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from mlmfast.cli.progress import progress_bar
from mlmfast.errors import SettingsError
from mlmfast.types import JsonRecord

SKIPPED_RECORDS = 3
INTERRUPTED = 130
TERMINATED = 143

InputFormat = Literal["text", "jsonl", "csv", "tsv", "fasta"]


def score(
    source: Annotated[str, typer.Argument(metavar="[FILE|-]", help="Input; - for standard input.")] = "-",
    *,
    model: Annotated[
        str | None, typer.Option(help="A folder or a hub id; by default the embedded English model.")
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Hub revision: a branch, tag or commit.")] = None,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Also load pickled weights, which can run code.")
    ] = False,
    masking: Annotated[
        str, typer.Option(help="original, word_l2r, whole_word, stride:K, none, causal.")
    ] = "original",
    engine: Annotated[str, typer.Option(help="auto, native or torch.")] = "auto",
    precision: Annotated[
        str | None, typer.Option(help="float32 (default), bf16x3 (native) or bfloat16.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...")] = None,
    per: Annotated[Literal["text", "word", "token"], typer.Option(help="What is reported.")] = "text",
    output_format: Annotated[
        Literal["jsonl", "tsv"], typer.Option("--format", help="Of the output.")
    ] = "jsonl",
    input_format: Annotated[InputFormat, typer.Option(help="Of the input.")] = "text",
    field: Annotated[
        str | None, typer.Option(metavar="NAME", help="The text's field or column (jsonl, csv, tsv).")
    ] = None,
    output: Annotated[str, typer.Option(metavar="FILE", help="Output; - for standard output.")] = "-",
    resume: Annotated[bool, typer.Option("--resume", help="Continue an unfinished output.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads; by default one per core.")] = None,
    max_batch_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of one batch.")] = None,
    overlong: Annotated[
        Literal["error", "truncate", "window"], typer.Option(help="For texts longer than the model takes.")
    ] = "error",
    on_error: Annotated[
        Literal["raise", "skip"], typer.Option(help="For records that cannot be scored.")
    ] = "raise",
    score_eos: Annotated[
        bool, typer.Option("--score-eos", help="Score the special token that ends a text, too.")
    ] = False,
    rank: Annotated[bool, typer.Option("--rank", help="Add each token's rank (per token).")] = False,
    entropy: Annotated[bool, typer.Option("--entropy", help="Add each place's entropy (per token).")] = False,
    top_k: Annotated[int, typer.Option(min=0, help="Add the K most probable tokens (per token).")] = 0,
    parse_special: Annotated[
        bool, typer.Option("--parse-special", help="[MASK] and the like in a text are special tokens.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar and no summary.")] = False,
) -> None:
    """Score texts with a masked language model: natural-log probabilities, one record per input record."""
    from mlmfast.cli.run import Report, run
    from mlmfast.io import header_line, open_output, read_records
    from mlmfast.scorer import load

    signal.signal(signal.SIGTERM, _terminate)
    records = read_records(source, input_format=input_format, field=field)
    _require_different_files(source, output)
    options: JsonRecord = {
        "masking": masking,
        "score_eos": score_eos,
        "overlong": overlong,
        "rank": rank,
        "entropy": entropy,
        "top_k": top_k,
        "parse_special": parse_special,
    }
    if per != "token" and (rank or entropy or top_k):
        raise SettingsError("--rank, --entropy and --top-k are reported per token; add --per token")
    with load(
        model,
        engine=engine,
        precision=precision,
        device=device,
        workers=workers,
        max_batch_tokens=max_batch_tokens,
        revision=revision,
        allow_pickle=allow_pickle,
    ) as scorer:
        # Wrong options are refused before an output from an earlier run is touched.
        scorer.score_iter((), on_error=on_error, **options)
        settings = {
            "environment": {"workers": workers, "max_batch_tokens": max_batch_tokens},
            **scorer.describe(),
            **options,
            "per": per,
            "format": output_format,
            "input_format": input_format,
            "field": field,
            "log_base": "e",
            "scored": "all tokens but special ones"
            + (", and the one that ends the text" if score_eos else ""),
        }
        report = Report(per, output_format)
        header = header_line(per=per, format=output_format)
        with (
            open_output(output, settings=settings, resume=resume, header=header) as out,
            progress_bar(source, input_format, quiet=quiet) as bar,
        ):
            try:
                run(scorer, records, out, bar, report, on_error=on_error, options=options)
            except (KeyboardInterrupt, SystemExit) as stop:
                _say(f"stopped after {report.totals.num_texts} texts{_how_to_resume(output)}", quiet=False)
                raise typer.Exit(TERMINATED if isinstance(stop, SystemExit) else INTERRUPTED) from None
            out.finish(report.summary())
    _say(f"{output} is complete already" if out.already_complete else report.sentence(), quiet)
    if report.totals.num_errors:
        raise typer.Exit(SKIPPED_RECORDS)


def _require_different_files(source: str, output: str) -> None:
    """Raises SettingsError if the output would replace the input before it is read."""
    if "-" not in (source, output) and Path(output).exists() and Path(output).samefile(source):
        raise SettingsError(f"{output} is the input, too; choose another output")


def _terminate(signal_number: int, frame: object) -> None:
    raise SystemExit(TERMINATED)


def _how_to_resume(output: str) -> str:
    return "" if output == "-" else f"; {output} holds what is done, continue with --resume"


def _say(message: str, quiet: bool) -> None:
    if not quiet:
        print(f"mlmfast: {message}", file=sys.stderr)
