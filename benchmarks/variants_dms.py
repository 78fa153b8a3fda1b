"""A deep mutational scan scored under every convention, and what can be checked of published scores of it.

`python benchmarks/variants_dms.py SCAN WILD_TYPE MODEL... [--score-column NAME] [--published PREFIX]`

SCAN: a CSV with `mutant`, a column of measured fitness and, if it has any, columns of published scores, of
single models, whose mean is an ensemble's. WILD_TYPE: a FASTA file. MODEL: folders; the models are averaged,
too. A correlation says something of a model only if it was trained on proteins like the one scanned: the tiny
models of the tests have random weights, and an antibody model knows nothing of an enzyme.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import mlmfast
from mlmfast.metrics import spearman
from mlmfast.proteins import CONTEXTS, CONVENTIONS, VariantScorer
from mlmfast.proteins.records import read_wild_type

WAYS = [(name, "wild-type") for name in CONVENTIONS] + [
    ("masked-marginals", context) for context in CONTEXTS if context != "wild-type"
]


def number(value: float) -> str:
    return "not defined" if math.isnan(value) else f"{value:+.4f}"


def published_figures(
    rows: Sequence[dict[str, str]], fitness: NDArray[np.float64], prefix: str
) -> list[tuple[str, float]]:
    """Spearman's correlation with fitness of each published column, and of their mean."""
    names = [name for name in rows[0] if name.startswith(prefix)]
    table = np.array([[float(row[name]) for name in names] for row in rows])
    found = [(name, spearman(table[:, column], fitness)) for column, name in enumerate(names)]
    return [*found, (f"mean of the {len(names)}", spearman(table.mean(axis=1), fitness))]


def score(
    models: Sequence[mlmfast.Scorer], wild_type: str, mutants: Sequence[str], convention: str, context: str
) -> tuple[NDArray[np.float64], int, float]:
    """float64[S, M] scores, the rows computed and the seconds taken."""
    scorer = VariantScorer(models, wild_type, convention=convention, context=context, overlong="window")
    start = time.perf_counter()
    scores = np.array(list(scorer.score_iter(map(scorer.parse, mutants))))
    return scores, sum(model.num_rows for model in scorer.models), time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scan", type=Path)
    parser.add_argument("wild_type", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--score-column", default="DMS_score")
    parser.add_argument("--published", default="", metavar="PREFIX")
    parser.add_argument("--pppl-limit", type=int, default=50, help="variants scored with pppl, evenly spread")
    options = parser.parse_args()
    with options.scan.open(newline="") as file:
        rows = list(csv.DictReader(file))
    mutants = [row["mutant"] for row in rows]
    fitness = np.array([float(row[options.score_column]) for row in rows])
    wild_type = read_wild_type(options.wild_type)
    print(f"{len(rows)} variants of {len(wild_type)} residues; Spearman's correlation with fitness:")
    if options.published:
        for name, value in published_figures(rows, fitness, options.published):
            print(f"  published  {name:<50} {number(value)}")
    models = [mlmfast.load(name) for name in options.models]
    for convention, context in WAYS:
        step = -(-len(rows) // options.pppl_limit) if convention == "pppl" else 1
        scores, num_rows, seconds = score(models, wild_type, mutants[::step], convention, context)
        name = convention if context == "wild-type" else f"{convention}, context {context}"
        print(f"  {name}: {len(scores)} variants, {num_rows} rows, {seconds:.1f} s")
        for model, column in zip(options.models, scores.T, strict=True):
            print(f"    {Path(model).name:<56} {number(spearman(column, fitness[::step]))}")
        if len(models) > 1:
            print(f"    {'mean of the models':<56} {number(spearman(scores.mean(axis=1), fitness[::step]))}")
        if (convention, context) == ("masked-marginals", "wild-type"):
            of_wild_type = scores
        elif convention == "masked-marginals":
            print(f"    largest difference from context wild-type: {np.abs(scores - of_wild_type).max():.1e}")
    for model in models:
        model.close()


if __name__ == "__main__":
    main()
