"""One run from a teacher and texts to a student's folder."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from mlmfast.engines.torch_device import choose_device
from mlmfast.errors import SettingsError, TrainingError
from mlmfast.scorer import Scorer, load
from mlmfast.training.distillation.corpus import Corpus
from mlmfast.training.distillation.nbest import lists_report
from mlmfast.training.distillation.pairs import pairs_report
from mlmfast.training.distillation.report import Trials, held_out_report, tokens_per_second
from mlmfast.training.distillation.settings import DistillationSettings
from mlmfast.training.distillation.student import Float64Array, Student
from mlmfast.training.distillation.teacher import TeacherScores, describe_teacher
from mlmfast.training.distillation.trainer import (
    DistillationTrainer,
    TaughtTexts,
    best_of,
    correlations,
    evaluations,
)
from mlmfast.training.distillation.writing import round_weights, shared_embeddings, write_student
from mlmfast.training.metrics_file import MetricsFile, read_metrics
from mlmfast.training.output import RunFolder
from mlmfast.training.trainer import Listener
from mlmfast.types import JsonRecord

TEACHER_FOLDER = "teacher"
"""In the output, of the teacher's scores, where no other folder is named."""
NOT_COMPARED = ("checkpoint_every",)
CHECKED_TEXTS = 64
TOLERANCE = 0.05
"""How far a written student's scores may be from the trained one's, in nats per token."""


class DistillationListener(Listener, Protocol):
    """What is told of a run as it goes."""

    def scoring(self, name: str, num_texts: int) -> None:
        """The teacher begins with so many texts."""

    def scored(self, num_tokens: int, num_texts: int) -> None:
        """The teacher is done with some."""


@dataclass(frozen=True)
class DistillationTexts:
    """train, held_out: texts, then corrupted variants of them; num_clean: held-out texts that are none."""

    train: Corpus
    held_out: Corpus | None
    num_clean: int
    trials: Trials


def distill(
    teacher: Scorer,
    texts: DistillationTexts,
    settings: DistillationSettings,
    output: Path,
    listener: DistillationListener,
    *,
    teacher_folder: Path | None = None,
    device: str | None = None,
    resume: bool = False,
) -> JsonRecord:
    """Trains a student and writes it to the folder `output`; the run's summary.

    teacher_folder: where the teacher's scores are kept, for other runs, too; by default within the output.
    With `resume` an unfinished run of the same settings goes on from its last checkpoint, on the same
    machine and number of threads bit for bit as if it had not stopped; a complete one is left as it is.

    Raises SettingsError for settings that do not fit, ModelError, OutputError for a folder that is not this
    run's, InputError for a text the teacher refuses, TrainingError for a loss or weights not finite.
    """
    if texts.held_out is None and settings.evaluate_every is not None:
        raise SettingsError("there is no held-out text to evaluate with; give --held-out FILE")
    taught_by = describe_teacher(teacher, settings.masking)
    folder = RunFolder(output, describe(taught_by, texts, settings, device), resume=resume)
    if folder.is_complete:
        folder.drop_checkpoint()
        return folder.summary()
    started = time.monotonic()
    student = Student(teacher.files, settings.student, precision=settings.precision, device=device)
    shared = shared_embeddings(student, teacher.files, output)
    named = {
        "train": texts.train,
        "held_out": texts.held_out,
        "lists": None if texts.trials.list_texts is None else texts.trials.list_texts.corpus,
        "pairs": None if texts.trials.pair_texts is None else texts.trials.pair_texts.corpus,
    }
    corpora = {name: corpus for name, corpus in named.items() if corpus is not None}
    kept = output / TEACHER_FOLDER if teacher_folder is None else teacher_folder
    caches = {
        name: TeacherScores(kept / f"{name}.f32", corpus, taught_by) for name, corpus in corpora.items()
    }
    folder.make()
    with MetricsFile(folder.metrics) as metrics:
        folder.start()
        for name, cache in caches.items():
            if not cache.is_complete:
                listener.scoring(name, corpora[name].num_texts)
                cache.compute(teacher, settings.masking, listener.scored)
        taught = {name: TaughtTexts(corpus, caches[name].read()) for name, corpus in corpora.items()}
        trainer = DistillationTrainer(student, taught["train"], taught.get("held_out"), settings, folder)
        num_before = trainer.run(metrics, listener)
        records = read_metrics(folder.metrics)
        round_weights(student, shared)
        source = teacher.files.source
        origin = {
            "model": source.name,
            "revision": source.revision,
            "weights_sha256": taught_by["teacher"]["weights_sha256"],
            "masking": settings.masking,
        }
        folder.write_model(lambda path: write_student(path, student, shared, origin), source.folder)
        summary = _training_summary(records)
        summary |= {
            **_report(student, teacher, output, texts, taught, settings),
            "steps_of_this_run": summary["steps"] - num_before,
            "seconds_of_this_run": time.monotonic() - started,
        }
        folder.complete(len(records), summary)
    return summary


def describe(
    taught_by: JsonRecord, texts: DistillationTexts, settings: DistillationSettings, device: str | None
) -> JsonRecord:
    """What makes the student, for its meta; "environment" is what may differ when a run is resumed."""
    compared = asdict(settings)
    environment = {name: compared.pop(name) for name in NOT_COMPARED}
    return {
        "environment": {
            "threads": torch.get_num_threads(),
            **environment,
            **taught_by["environment"],
            "trials": texts.trials.describe(),
        },
        "teacher": taught_by["teacher"],
        "device": str(choose_device(device)),
        "versions": {name: version(name) for name in ("mlmfast", "tokenizers", "torch", "transformers")},
        "texts": texts.train.describe(),
        "held_out": None if texts.held_out is None else texts.held_out.describe(),
        **compared,
    }


def _training_summary(records: list[JsonRecord]) -> JsonRecord:
    """From the metrics: steps done, and the evaluation whose weights were kept."""
    steps = [record["step"] for record in records if "loss" in record]
    evaluated = evaluations(records)
    best = evaluated[best_of(correlations(records))] if evaluated else None
    return {
        "steps": steps[-1],
        "best_step": None if best is None else best["step"],
        "best_rank_correlation": None if best is None else best["held_out"]["rank_correlation"],
    }


def _report(
    student: Student,
    teacher: Scorer,
    output: Path,
    texts: DistillationTexts,
    taught: dict[str, TaughtTexts],
    settings: DistillationSettings,
) -> JsonRecord:
    """Figures of the weights as written, in float32, and the speed of both, see `report`."""
    student.precision = "float32"
    trials = texts.trials
    report: JsonRecord = dict.fromkeys(("held_out", "lists", "pairs"))

    def scores(name: str) -> Float64Array:
        return student.scores(taught[name].corpus, settings.batch_tokens)

    if "held_out" in taught:
        of = taught["held_out"]
        report["held_out"] = held_out_report(of.sums, scores("held_out"), of.num_tokens, texts.num_clean)
    if trials.lists is not None and trials.list_texts is not None:
        spread = trials.list_texts.spread
        report["lists"] = lists_report(
            trials.lists,
            spread(taught["lists"].sums),
            spread(scores("lists")),
            trials.list_texts.num_tokens,
            seed=settings.seed,
        )
    if trials.pair_texts is not None:
        spread = trials.pair_texts.spread
        report["pairs"] = pairs_report(spread(taught["pairs"].sums), spread(scores("pairs")))
    sample = (taught.get("held_out") or taught["train"]).corpus
    with load(output, device=str(student.device)) as written:
        _check_written(written, student, sample.subset(np.arange(min(sample.num_texts, CHECKED_TEXTS))))
        report["tokens_per_second"] = {
            "teacher": tokens_per_second(teacher, sample.texts, settings.masking),
            "student": tokens_per_second(written, sample.texts, "student"),
            "student_engine": written.describe()["engine"],
        }
    return report


def _check_written(written: Scorer, student: Student, corpus: Corpus) -> None:
    """Raises TrainingError if what was written does not score as what was trained."""
    found = np.array([result.score for result in written.score_iter(corpus.texts, "student")])
    expected = student.scores(corpus, int(corpus.lengths.max()))
    error = float(np.abs((found - expected) / corpus.num_tokens).max())
    if not error <= TOLERANCE:
        raise TrainingError(
            f"the student as written scores up to {error:.3g} nats a token from the one that was "
            "trained: its model type is not carried out the same way"
        )
