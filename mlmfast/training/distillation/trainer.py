"""The loop: batches of texts of one length, AdamW, held-out rank correlation, exact checkpoints."""

from __future__ import annotations

import math

import numpy as np
import torch

from mlmfast.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from mlmfast.training.distillation.agreement import agreement
from mlmfast.training.distillation.buckets import Buckets
from mlmfast.training.distillation.corpus import Corpus
from mlmfast.training.distillation.loss import Scale
from mlmfast.training.distillation.settings import DistillationSettings
from mlmfast.training.distillation.student import Student
from mlmfast.training.distillation.teacher import sums_of
from mlmfast.training.metrics_file import MetricsFile, read_metrics
from mlmfast.training.optimiser import adamw, set_learning_rate
from mlmfast.training.output import RunFolder
from mlmfast.training.schedule import learning_rate
from mlmfast.training.trainer import Listener
from mlmfast.types import Float32Array, JsonRecord


class TaughtTexts:
    """Texts and what the teacher says of them: values float32[N], sums float64[S]."""

    def __init__(self, corpus: Corpus, values: Float32Array) -> None:
        self.corpus = corpus
        self.values = values
        self.sums = sums_of(values, corpus)
        self.num_tokens = corpus.num_tokens


class DistillationTrainer:
    """Trains a student in place, keeping its state in a folder."""

    def __init__(
        self,
        student: Student,
        texts: TaughtTexts,
        held_out: TaughtTexts | None,
        settings: DistillationSettings,
        folder: RunFolder,
    ) -> None:
        """Raises SettingsError if everything is frozen."""
        self._student = student
        self._corpus = texts.corpus
        self._held_out = held_out
        self._settings = settings
        self._folder = folder
        targets = texts.values if settings.student.head == "token" else texts.sums.astype(np.float32)
        student.scale = Scale.of(targets)
        self._targets = student.scale.standardised(targets)
        self._buckets = Buckets(texts.corpus.lengths, settings.batch_tokens, settings.seed)
        self._optimiser = adamw(student, settings.weight_decay)
        self._best: dict[str, torch.Tensor] | None = None

    def run(self, metrics: MetricsFile, listener: Listener) -> int:
        """All steps not done yet, or until patience ends; the student is left with its best weights. How many
        steps were done before.

        Raises TrainingError for a loss, gradient or weights that are not finite: the last checkpoint stays.
        Raises OutputError if the folder cannot be written or its checkpoint not be read.
        """
        settings = self._settings
        begun = self._restore(metrics)
        listener.started(begun)
        found = correlations(read_metrics(metrics.path))
        if begun == 0:
            self._evaluate(0, metrics, listener, found)
        for step in range(begun + 1, settings.steps + 1):
            if self._has_stopped(found):
                break
            record = self._step(step)
            metrics.add(record)
            listener.stepped(record)
            last = step == settings.steps
            if last or (settings.evaluate_every and step % settings.evaluate_every == 0):
                self._evaluate(step, metrics, listener, found)
            if last or step % settings.checkpoint_every == 0 or self._has_stopped(found):
                self._save(step, metrics)
                listener.saved(step)
        if self._best is not None:
            self._student.restore(self._best)
        return begun

    def _step(self, step: int) -> JsonRecord:
        settings = self._settings
        texts = self._buckets.batch(step)
        rate = learning_rate(step, settings.steps, settings.schedule)
        self._optimiser.zero_grad(set_to_none=True)
        loss = self._student.loss(self._corpus, self._targets, texts, settings.loss)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = float(torch.nn.utils.clip_grad_norm_(self._student.parameters(), settings.max_gradient_norm))
        value = float(loss.detach())
        if not (math.isfinite(value) and math.isfinite(norm)):
            raise self._folder.diverged(step, f"the loss is {value} and the norm of its gradient {norm}")
        set_learning_rate(self._optimiser, rate)
        self._optimiser.step()
        return {
            "step": step,
            "loss": value,
            "learning_rate": rate,
            "gradient_norm": norm,
            "num_texts": len(texts),
            "num_tokens": int(self._corpus.lengths[texts].sum()),
        }

    def _evaluate(self, step: int, metrics: MetricsFile, listener: Listener, found: list[float]) -> None:
        """Adds the held-out rank correlation to those found, and keeps weights that are better. Before the
        first step the head is a constant: its correlations are those of rounding, and only reported."""
        if self._held_out is None:
            return
        scores = self._student.scores(self._held_out.corpus, self._settings.batch_tokens)
        if not np.isfinite(scores).all():
            raise self._folder.diverged(step, "the held-out scores are not finite")
        agreed = agreement(self._held_out.sums, scores, self._held_out.num_tokens)
        record = {"step": step, "held_out": agreed.record()}
        metrics.add(record)
        if step:
            found.append(agreed.rank_correlation)
            if best_of(found) == len(found) - 1:
                self._best = self._student.trained_state()
        listener.evaluated(record)

    def _has_stopped(self, found: list[float]) -> bool:
        patience = self._settings.patience
        return patience is not None and len(found) - 1 - best_of(found) >= patience

    def _save(self, step: int, metrics: MetricsFile) -> None:
        state = self._student.trained_state()
        if not all(bool(values.isfinite().all()) for values in state.values()):
            raise self._folder.diverged(step, "weights are no longer finite")
        write_checkpoint(
            self._folder.checkpoint,
            Checkpoint(
                step=step,
                model=state,
                optimiser=self._optimiser.state_dict(),
                metrics_bytes=metrics.sync(),
                settings_sha256=self._folder.settings_sha256,
                best=self._best,
            ),
        )

    def _restore(self, metrics: MetricsFile) -> int:
        """The state of the checkpoint, if there is one; steps done."""
        found = read_checkpoint(self._folder.checkpoint, self._folder.settings_sha256)
        if found is None:
            metrics.cut(0)
            return 0
        self._student.restore(found.model)
        self._optimiser.load_state_dict(found.optimiser)
        self._best = found.best
        metrics.cut(found.metrics_bytes)
        return found.step


def correlations(metrics: list[JsonRecord]) -> list[float]:
    """Of every evaluation after the first step, the held-out rank correlation; NaN is null in a file."""
    found = [record["held_out"]["rank_correlation"] for record in evaluations(metrics)]
    return [math.nan if value is None else value for value in found]


def evaluations(metrics: list[JsonRecord]) -> list[JsonRecord]:
    """The lines of evaluations after the first step."""
    return [record for record in metrics if "held_out" in record and record["step"]]


def best_of(found: list[float]) -> int:
    """The evaluation with the largest correlation, the first of equals; the first where all are NaN."""
    return int(np.argmax(np.nan_to_num(found, nan=-2.0))) if found else 0
