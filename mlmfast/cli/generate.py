"""`mlmfast generate`: texts sampled from a masked language model."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from mlmfast.cli.files import require_different_files
from mlmfast.cli.generate_options import AlphabetOptions, SamplingOptions, SeedTextOptions, StartOptions
from mlmfast.cli.option_groups import EngineOptions, OutputOptions, grouped
from mlmfast.cli.progress import bar_of
from mlmfast.cli.stopping import end_on_terminate, say, stop_reported
from mlmfast.errors import SettingsError


@grouped
def generate(
    source: Annotated[
        str | None, typer.Argument(metavar="[FILE|-]", help="Texts to start from; - for standard input.")
    ] = None,
    *,
    model: Annotated[
        str | None, typer.Option(help="A folder or a hub id; by default the embedded English model.")
    ] = None,
    num: Annotated[int, typer.Option(min=1, help="Chains, for each text to start from.")] = 1,
    seed_text: SeedTextOptions,
    start: StartOptions,
    sampling: SamplingOptions,
    alphabet: AlphabetOptions,
    output_format: Annotated[
        Literal["text", "jsonl", "fasta"],
        typer.Option("--format", help="Of the output; jsonl has the energies and the trail."),
    ] = "text",
    num_together: Annotated[int, typer.Option(min=1, help="Chains that advance together.")] = 64,
    engine: EngineOptions,
    out: OutputOptions,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar and no summary.")] = False,
) -> None:
    """Generate texts with a masked language model: Gibbs sampling, Mask-Predict, Metropolis-Hastings."""
    from mlmfast.cli.generate_run import GenerationRun, seed_records
    from mlmfast.generation import GenerationSettings, StartMaker, StartSettings, allowed_tokens
    from mlmfast.generation.output import check_format
    from mlmfast.io import open_output
    from mlmfast.scorer import load

    end_on_terminate()
    if source is not None and seed_text.text is not None:
        raise SettingsError("texts to start from are given twice; give a file or --text")
    if source is None and seed_text.text is None and start.length is None:
        raise SettingsError("nothing to start from: give --length, --text, or a file of texts")
    if source is None and (seed_text.field is not None or seed_text.input_format != "text"):
        raise SettingsError("--field and --input-format are of a file of texts; give one, or leave them out")
    settings = GenerationSettings(**asdict(sampling))
    starts = StartSettings(
        **{**asdict(start), "fixed_phrases": tuple(start.fixed_phrases), "words": tuple(start.words)}
    )
    allow, forbid = alphabet.allowed(), alphabet.forbidden()
    records = seed_records(source, seed_text)
    for given in (source, alphabet.allow_file, alphabet.forbid_file):
        require_different_files(str(given or "-"), out.output)
    with load(model, **asdict(engine)) as scorer:
        check_format(output_format, scorer.files.tokenizer, settings.record_every)
        allowed = allowed_tokens(
            scorer.files.tokenizer, scorer.files.config.vocab_size, allow=allow, forbid=forbid
        )
        maker = StartMaker(scorer, starts, allowed=allowed, seed=settings.seed)
        run = GenerationRun(scorer, maker, settings, allowed, output_format, num_together)
        described = {
            "environment": {**engine.environment(), "num_together": num_together},
            **scorer.describe(),
            **asdict(settings),
            **asdict(starts),
            "num": num,
            "allow": allow,
            "forbid": forbid,
            "format": output_format,
            "input_format": None if source is None else seed_text.input_format,
            "field": seed_text.field,
            "log_base": "e",
        }
        with (
            open_output(out.output, settings=described, resume=out.resume) as file,
            bar_of(lambda: num if source is None else None, "steps", quiet=quiet, doing="generating") as bar,
        ):
            with stop_reported(lambda: f"{run.num_chains} chains", out.output):
                run.write_chains(records, num, file, bar)
            file.finish(run.summary())
    say(f"{out.output} is complete already" if file.already_complete else run.sentence(), quiet)
