"""The figures that `mlmfast eval-generation` writes, as JSON objects."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from mlmfast.cli.generation_options import NgramOptions, TrailOptions
from mlmfast.cli.option_groups import EngineOptions, RunOptions, ScoringOptions
from mlmfast.cli.progress import bar_of
from mlmfast.errors import InputError
from mlmfast.evaluation import (
    Overlap,
    likelihood,
    plot_energies,
    read_chains,
    read_trail,
    trail_figures,
    units_of,
)
from mlmfast.io import InputRecord, read_records
from mlmfast.rescoring.metrics import metric_named
from mlmfast.scorer import load, open_model
from mlmfast.types import JsonRecord

WITH_FIELDS = ("jsonl", "csv", "tsv")


def read_texts(source: str, input_format: str, field: str | None, *, skip: bool) -> list[InputRecord]:
    """The records of a file. Raises InputError for the first that cannot be read, unless skip."""
    records = list(read_records(source, input_format=input_format, field=field))
    for record in records:
        if record.error is not None and not skip:
            raise record.error.at(where=place(source, record.line))
    return records


def reference_texts(source: str, input_format: str, field: str | None) -> list[str]:
    """The texts of a file of references. Raises InputError for none, and for an unreadable one, which cannot
    be left out."""
    named = field if input_format in WITH_FIELDS else None
    texts = [record.text or "" for record in read_texts(source, input_format, named, skip=False)]
    if not texts:
        raise InputError("no references, so there is nothing to compare with", where=name_of(source))
    return texts


def overlap_figures(
    texts: list[str], pool: list[str], ngrams: NgramOptions, model: str | None, engine: EngineOptions
) -> JsonRecord:
    """Self-BLEU and unique n-grams, and where there are references the same against them."""
    tokenizer = None
    if ngrams.unit == "token":
        files = open_model(model, revision=engine.revision, allow_pickle=engine.allow_pickle)
        tokenizer = files.tokenizer
    sampled, referred = (
        units_of(given, str(ngrams.unit), lowercase=ngrams.lowercase, tokenizer=tokenizer)
        for given in (texts, pool)
    )
    overlap = Overlap(sampled, referred, max_order=ngrams.max_order)
    self_bleu = overlap.self_bleu()
    figures: JsonRecord = {
        "unit": ngrams.unit,
        "self_bleu": None if self_bleu is None else asdict(self_bleu),
        "unique_ngrams": {"in_samples": overlap.unique_in_samples()},
    }
    if pool:
        figures["num_references"] = len(pool)
        figures["corpus_bleu"] = asdict(overlap.corpus_bleu())
        figures["unique_ngrams"]["against_references"] = overlap.unique_against_references()
    return figures


def aligned_bleu(
    records: list[InputRecord], aligned: list[list[str]], files: list[str], *, lowercase: bool
) -> JsonRecord:
    """Corpus BLEU, each sample with its own references. Raises InputError if their numbers differ."""
    cased = str.lower if lowercase else str
    for file, references in zip(files, aligned, strict=True):
        if len(references) != len(records):
            raise InputError(
                f"{file} has {len(references)} references for {len(records)} samples; give one for each, in "
                "order, or a pool with --references"
            )
    bleu = metric_named("bleu")
    statistics = [
        bleu.statistics([cased(record.text)], [cased(texts[index]) for texts in aligned])
        for index, record in enumerate(records)
        if record.text is not None
    ]
    return {"score": float(bleu.value(np.concatenate(statistics).sum(axis=0))), **bleu.settings()}


def scored(
    source: str,
    records: list[InputRecord],
    model: str,
    scoring: ScoringOptions,
    engine: EngineOptions,
    how: RunOptions,
) -> JsonRecord:
    """Likelihood of the samples under a model. Raises InputError with a sample's line."""
    num_done = 0
    with (
        load(model, **asdict(engine)) as scorer,
        bar_of(lambda: len(records), "tokens", quiet=how.quiet) as bar,
    ):

        def advance(num_tokens: int) -> None:
            nonlocal num_done
            num_done += 1
            bar.advance(num_tokens)

        try:
            found = likelihood(
                scorer,
                (record.text or "" for record in records),
                on_error=how.on_error,
                scored=advance,
                **asdict(scoring),
            )
        except InputError as error:
            raise error.at(where=place(source, records[num_done].line)) from None
        return {**asdict(found), "is_pll": found.is_pll, "log_base": "e", "made_with": scorer.describe()}


def chain_figures(source: str, options: TrailOptions) -> JsonRecord:
    """The figures of a trail, and its plot if one is wanted. Raises InputError with the file."""
    try:
        chains = read_chains(read_trail(source), burn_in=options.burn_in)
        if options.plot is not None:
            plot_energies(chains, options.plot)
    except InputError as error:
        raise InputError(str(error), where=name_of(source)) from None
    return asdict(trail_figures(chains, num_lags=options.lags))


def place(source: str, line: int) -> str:
    return f"{name_of(source)}, line {line}"


def name_of(source: str) -> str:
    return "standard input" if source == "-" else source
