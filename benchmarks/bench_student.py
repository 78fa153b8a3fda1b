"""How near students come to their teacher, and how much faster they are.

    python benchmarks/bench_student.py --student FOLDER --fell-swoop FOLDER --cache FOLDER \\
        --texts wiki103.5k.txt sentence_polarity.txt@1000 --blimp pairs.jsonl.gz --lists lists.json

Beside the students stand what they must beat: the teacher's own unmasked log-probabilities, their
training-free correction (student_baselines.py) and the one-fell-swoop head (student_fell_swoop.py). All
scores are kept in the folder --cache, so that the next student is judged quickly. One thread.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

import torch
from machine import banner
from report import Report
from student_baselines import Correction, corrected, unmasked
from student_fell_swoop import fell_swoop
from student_material import Material, Sample, read_material
from student_rates import rate_tables, rate_texts
from student_scores import Judged, Scores, cached_scores, scorer_judged
from student_tables import Column, list_table, pair_table, text_tables
from texts import INAUGURAL

import mlmfast

TEACHER = "teacher"


def load_students(folders: list[Path], engine: str) -> dict[str, mlmfast.Scorer]:
    """By their names in the tables. Raises SystemExit if two have the same."""
    names = [f"student {folder.name}" for folder in folders]
    if len(set(names)) < len(names):
        raise SystemExit(f"{', '.join(names)}: two folders have one name, by which the tables call them")
    return {
        name: mlmfast.load(folder, engine=engine, workers=1)
        for name, folder in zip(names, folders, strict=True)
    }


def baselines(options: argparse.Namespace, teacher: mlmfast.Scorer, report: Report) -> list[Judged]:
    own = unmasked(teacher)
    found = [own, *(corrected(own, Correction(epsilon=e), options.cache) for e in options.epsilon)]
    if options.fell_swoop is None:
        report.say(
            "- the one-fell-swoop head is not judged: give its folder with --fell-swoop, made by "
            "student_fell_swoop.py"
        )
        return found
    return [*found, fell_swoop(options.fell_swoop, options.teacher)]


def agreement_report(
    report: Report, material: Material, teacher: Judged, judged: list[Judged], cache: Path, foldings: int
) -> None:
    scores: dict[str, dict[str, Scores]] = {
        part.name: {one.name: cached_scores(cache, one, part) for one in (teacher, *judged)}
        for part in material.parts
    }

    def columns(part_name: str) -> list[Column]:
        return list(scores[part_name].items())

    for part in material.texts:
        report.say(f"### {part.name}: {len(part.texts):,} texts")
        for table in text_tables(columns(part.name)):
            report.say(table)
    if material.pairs is not None:
        report.say(f"### {material.pairs.name}: {len(material.pairs.groups):,} pairs")
        report.say(pair_table(columns(material.pairs.name)))
    if material.lists is not None:
        part = material.lists
        report.say(f"### {part.name}: {len(part.groups)} lists, {len(part.texts):,} hypotheses")
        report.say(list_table(columns(part.name), part.offsets, material.nbest, foldings))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--student", type=Path, nargs="*", default=[], help="folders")
    parser.add_argument("--engine", default="auto", help="of the students")
    parser.add_argument("--teacher", help="folder or hub id; by default the embedded model")
    parser.add_argument("--fell-swoop", type=Path, help="folder made by student_fell_swoop.py")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1e-1, 1e-3], help="of the correction")
    parser.add_argument(
        "--texts", nargs="*", default=[], help="files, a text a line; FILE@N: its last N lines"
    )
    parser.add_argument("--sample", type=int, default=2000, help="texts of each file")
    parser.add_argument("--least-tokens", type=int, default=5, help="of a text that is taken")
    parser.add_argument("--most-tokens", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="of the choice of texts")
    parser.add_argument("--blimp", type=Path, help="minimal pairs, or a folder that holds pairs.jsonl.gz")
    parser.add_argument("--pairs-per-paradigm", type=int, default=250)
    parser.add_argument("--lists", type=Path, help="n-best lists in any format of mlmfast rescore")
    parser.add_argument("--foldings", type=int, default=5, help="cross-fittings of the weight")
    parser.add_argument("--cache", type=Path, required=True, help="folder of scores")
    parser.add_argument("--rate-rounds", type=int, default=0, help="rounds of the rates; 0 leaves them out")
    parser.add_argument("--rate-text", type=Path, default=INAUGURAL, help="the rates are of pieces of it")
    parser.add_argument("--rate-lengths", type=int, nargs="+", default=[20, 64, 128], help="in tokens")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()

    torch.set_num_threads(1)
    report = Report(options.output)
    report.say(f"`python benchmarks/bench_student.py {shlex.join(sys.argv[1:])}`\n\n{banner()}")
    with mlmfast.load(options.teacher, workers=1) as scorer:
        teacher = scorer_judged(TEACHER, scorer, "original")
        described = ", ".join(f"{key} {value}" for key, value in teacher.settings.items())
        report.say(f"- teacher: {scorer.files.source.name} ({described})")
        material = read_material(
            options.texts,
            options.blimp,
            options.lists,
            sample=Sample(options.sample, options.least_tokens, options.most_tokens, options.seed),
            pairs_per_paradigm=options.pairs_per_paradigm,
            tokenizer=scorer.files.tokenizer,
        )
        students = load_students(options.student, options.engine)
        if not students:
            report.say("- no student is judged: none was given with --student")
        judged = [scorer_judged(name, own, own.default_masking) for name, own in students.items()]
        judged += baselines(options, scorer, report)
        agreement_report(report, material, teacher, judged, options.cache, options.foldings)
        if options.rate_rounds:
            pieces = {n: rate_texts(scorer, options.rate_text, n) for n in options.rate_lengths}
            report.say(rate_tables(scorer, students, pieces, options.rate_rounds))


if __name__ == "__main__":
    main()
