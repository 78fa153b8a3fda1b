"""What the scoring rules do to a masked language model, after Shao et al. 2024 (arXiv:2405.18906).

    python benchmarks/study_scoring_rules.py scratch --text BOOKS
    python benchmarks/study_scoring_rules.py finetuned --text BOOKS --blimp pairs.jsonl.gz --nbest LISTS
    python benchmarks/study_scoring_rules.py smoothed --text BOOKS --blimp pairs.jsonl.gz --nbest LISTS

`scratch`: a tiny BERT from random weights, one rule from the first step. `finetuned`: the embedded model,
which the log score trained, some steps further. `smoothed`: the same with score smoothing, with and without
the masked-log term. BOOKS: a folder of .txt or .txt.gz, a paragraph per line.

Every run is a line of RESULTS.jsonl and is not repeated; RESULTS.md has the tables of all lines. One thread.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from study_measures import MEASURED_ON, frequency_figures, measures
from study_runs import FIGURES, blocks_of, described, read_paragraphs, tiny_bert, train
from study_tables import page

from mlmfast.scorer import open_model
from mlmfast.training import TrainingRows

RESULTS = Path(__file__).resolve().parent / "results" / "scoring-rules-study.jsonl"
BEFORE = "before"
"""The arm of `finetuned` that is the embedded model as it is."""
FREQUENCIES = "token frequencies"
"""The arm of `scratch` that is no model but counts."""
UNTRAINED = {"finetuned": BEFORE, "scratch": FREQUENCIES}


@dataclass(frozen=True)
class Material:
    """What a figure is made from. blimp and nbest only for models that are measured whole."""

    rows: TrainingRows
    held_out: TrainingRows
    held_out_texts: list[str]
    blimp: Path | None
    nbest: Path | None

    def measures(self, model: Path | None) -> dict[str, Any]:
        assert self.blimp is not None
        assert self.nbest is not None
        return measures(model, self.held_out, self.held_out_texts, self.blimp, self.nbest)


def read_results(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def jobs(figure: str, num_seeds: int) -> Iterator[tuple[str, int]]:
    """Arms and seeds, a seed at a time, so that an interrupted figure compares what it has."""
    if figure in UNTRAINED:
        yield UNTRAINED[figure], 0
    for seed in range(num_seeds):
        for arm in FIGURES[figure].arms:
            yield arm, seed


def settings_of(figure: str, arm: str, seed: int, steps: int) -> dict[str, Any]:
    """What the numbers of a run depend on, as JSON gives it back."""
    is_trained = arm != UNTRAINED.get(figure)
    trained = described(figure, FIGURES[figure].settings(arm, seed, steps)) if is_trained else {}
    measured = {} if FIGURES[figure].from_scratch else {"measured": MEASURED_ON}
    settings: dict[str, Any] = json.loads(json.dumps({**trained, **measured}))
    return settings


def run(figure: str, arm: str, seed: int, steps: int, material: Material) -> dict[str, Any]:
    """One line of the results, but for what names it."""
    if arm == BEFORE:
        return {"measures": material.measures(None)}
    if arm == FREQUENCIES:
        return {"measures": frequency_figures(material.rows, material.held_out)}
    chosen = FIGURES[figure]
    settings = chosen.settings(arm, seed, steps)
    with tempfile.TemporaryDirectory() as name:
        tuned = Path(name) / "tuned"
        if chosen.from_scratch:
            files = tiny_bert(Path(name) / "start", seed)
            return {"evaluations": train(files, material.rows, material.held_out, settings, tuned)}
        train(open_model(), material.rows, None, settings, tuned)
        return {"measures": material.measures(tuned)}


def study(figure: str, material: Material, output: Path, *, num_seeds: int, steps: int) -> None:
    """Adds the runs that `output` lacks. Raises SystemExit if it has one of other settings."""
    for arm, seed in jobs(figure, num_seeds):
        settings = settings_of(figure, arm, seed, steps)
        name = {"figure": figure, "arm": arm, "seed": seed}
        found = [r for r in read_results(output) if {k: r[k] for k in name} == name]
        if any(r["settings"] != settings for r in found):
            raise SystemExit(f"{output}: its run {name} has other settings; give another --output")
        if found:
            continue
        started = time.process_time()
        record = {**name, **run(figure, arm, seed, steps, material)}
        record |= {"cpu_seconds": round(time.process_time() - started, 1), "settings": settings}
        with output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        print(f"{name}: {record['cpu_seconds']} s", flush=True)
        write_tables(output)
    write_tables(output)


def write_tables(output: Path) -> None:
    output.with_suffix(".md").write_text(page(read_results(output)), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figure", choices=FIGURES)
    parser.add_argument("--text", type=Path, required=True, metavar="BOOKS")
    parser.add_argument("--blimp", type=Path, metavar="FILE")
    parser.add_argument("--nbest", type=Path, metavar="LISTS", help="with references and first-pass scores")
    parser.add_argument("--steps", type=int, help="of every run, for a trial")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="RESULTS.jsonl")
    options = parser.parse_args()
    figure = FIGURES[options.figure]
    if not figure.from_scratch and (options.blimp is None or options.nbest is None):
        parser.error(f"{options.figure} needs --blimp and --nbest")
    torch.set_num_threads(1)
    paragraphs = read_paragraphs(options.text)
    files = open_model()
    material = Material(
        blocks_of(paragraphs.train, files),
        blocks_of(paragraphs.held_out, files),
        paragraphs.held_out,
        options.blimp,
        options.nbest,
    )
    study(
        options.figure, material, options.output, num_seeds=options.seeds, steps=options.steps or figure.steps
    )


if __name__ == "__main__":
    main()
