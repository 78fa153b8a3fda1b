"""`mlmfast eval-generation`: how diverse, likely and well-mixed generated texts are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from mlmfast.cli.files import require_different_files, require_place_for, write_text
from mlmfast.cli.generation_options import InputFormat, NgramOptions, ReferenceOptions, TrailOptions
from mlmfast.cli.option_groups import EngineOptions, RunOptions, ScoringOptions, grouped
from mlmfast.cli.stopping import SKIPPED_RECORDS, end_on_terminate, say
from mlmfast.errors import SettingsError
from mlmfast.types import JsonRecord


@grouped
def eval_generation(
    samples: Annotated[
        str | None, typer.Argument(metavar="[SAMPLES|-]", help="Generated texts; - for standard input.")
    ] = None,
    *,
    input_format: Annotated[InputFormat, typer.Option(help="Of the samples.")] = "text",
    field: Annotated[
        str | None, typer.Option(metavar="NAME", help="The text's field or column (jsonl, csv, tsv).")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Score the samples with this model; mlmfast-mini-en is the embedded English one."),
    ] = None,
    causal_model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Perplexity of the samples under this causal model.")
    ] = None,
    output: Annotated[str, typer.Option(metavar="FILE", help="Output; - for standard output.")] = "-",
    reference: ReferenceOptions,
    ngrams: NgramOptions,
    trail: TrailOptions,
    scoring: ScoringOptions,
    engine: EngineOptions,
    how: RunOptions,
) -> None:
    """Evaluate generated texts, the chains that made them, or both; all figures as JSON."""
    from mlmfast.cli.generation_figures import (
        aligned_bleu,
        chain_figures,
        overlap_figures,
        read_texts,
        reference_texts,
        scored,
    )
    from mlmfast.io.json_text import to_json
    from mlmfast.io.standard_output import require_uncompressed

    end_on_terminate()
    require_uncompressed(output)
    check_options(samples, reference, trail, model, causal_model, ngrams.unit)
    inputs = [samples, trail.trail, *reference.references, *reference.aligned_references]
    if inputs.count("-") > 1:
        raise SettingsError("standard input can be read once; name files for the other inputs")
    for given in inputs:
        if given is not None:
            require_different_files(given, output)
    if trail.plot is not None:
        require_place_for("--plot", trail.plot, output, *inputs)
    if output != "-":
        require_place_for("--output", Path(output))
    # Before the models, which take longer, so that a broken trail is known at once.
    of_trail = None if trail.trail is None else chain_figures(trail.trail, trail)
    figures: JsonRecord = {}
    num_skipped = 0
    if samples is not None:
        records = list(read_texts(samples, input_format, field, skip=how.on_error == "skip"))
        kept = [record for record in records if record.error is None]
        num_skipped = len(records) - len(kept)
        texts = [record.text or "" for record in kept]
        unit = ngrams.unit or ("character" if input_format == "fasta" else "word")
        figures["samples"] = {
            "num_texts": len(texts),
            "num_empty": sum(not text.strip() for text in texts),
            "num_skipped": num_skipped,
        }
        as_samples = (reference.reference_format or input_format, field)
        pool = [text for file in reference.references for text in reference_texts(file, *as_samples)]
        figures |= overlap_figures(texts, pool, replace(ngrams, unit=unit), model, engine)
        if reference.aligned_references:
            aligned = [reference_texts(file, *as_samples) for file in reference.aligned_references]
            figures["bleu"] = aligned_bleu(
                records, aligned, reference.aligned_references, lowercase=ngrams.lowercase
            )
        if model is not None:
            figures["likelihood"] = scored(samples, kept, model, scoring, engine, how)
            num_skipped += figures["likelihood"]["num_skipped"]
        if causal_model is not None:
            causal = replace(scoring, masking="causal")
            shared = replace(engine, engine="auto", precision=None, revision=None)
            figures["causal_likelihood"] = scored(samples, kept, causal_model, causal, shared, how)
            num_skipped += figures["causal_likelihood"]["num_skipped"]
    if of_trail is not None:
        figures["trail"] = of_trail
    content = to_json({**figures, "made_with": made_with(samples, reference, ngrams, trail)}, indented=True)
    if output == "-":
        print(content)
    else:
        write_text(Path(output), content + "\n")
    say(sentence(figures), how.quiet)
    if num_skipped:
        raise typer.Exit(SKIPPED_RECORDS)


def check_options(
    samples: str | None,
    reference: ReferenceOptions,
    trail: TrailOptions,
    model: str | None,
    causal_model: str | None,
    unit: str | None,
) -> None:
    """Raises SettingsError for options that need others, before anything is read."""
    if samples is None and trail.trail is None:
        raise SettingsError("nothing to evaluate: name a file of samples, a --trail, or both")
    of_samples = [*reference.references, *reference.aligned_references, model, causal_model]
    if samples is None and any(option is not None for option in of_samples):
        raise SettingsError("references and models are for samples; name the file of samples")
    if unit == "token" and model is None:
        raise SettingsError("--unit token: name the --model whose tokens are meant")
    if trail.trail is None and (trail.plot is not None or trail.burn_in):
        raise SettingsError("--plot and --burn-in are for a --trail; name one")
    if trail.plot is not None:
        from mlmfast.evaluation.energy_plot import check_plot

        check_plot(trail.plot)


def made_with(
    samples: str | None, reference: ReferenceOptions, ngrams: NgramOptions, trail: TrailOptions
) -> JsonRecord:
    """What the figures of samples and trail depend on; a model's are beside them."""
    from importlib.metadata import version

    return {
        "samples": samples,
        "references": reference.references,
        "aligned_references": reference.aligned_references,
        "lowercase": ngrams.lowercase,
        "max_order": ngrams.max_order,
        "trail": trail.trail,
        "burn_in": trail.burn_in,
        "mlmfast": version("mlmfast"),
    }


def sentence(figures: JsonRecord) -> str:
    """The main figures for a person."""
    said = []
    if "samples" in figures:
        found = figures["samples"]
        said.append(
            f"{found['num_texts']:,} samples ({found['num_empty']:,} empty, {found['num_skipped']:,} skipped "
            "with an error)"
        )
    for name, key in (("self-BLEU", "self_bleu"), ("corpus BLEU", "corpus_bleu"), ("BLEU", "bleu")):
        if figures.get(key) is not None:
            said.append(f"{name} {figures[key]['score']:.2f}")
    for name, key in (("PPPL", "likelihood"), ("perplexity", "causal_likelihood")):
        if key in figures and figures[key]["pppl"] is not None:
            said.append(f"{name} {figures[key]['pppl']:.2f}")
    if "trail" in figures:
        found = figures["trail"]
        said.append(f"{found['num_records']:,} states of chains ({found['num_chains']:,})")
        if found["effective_sample_size"] is not None:
            said.append(f"effective sample size {found['effective_sample_size']:.1f}")
    return ", ".join(said)
