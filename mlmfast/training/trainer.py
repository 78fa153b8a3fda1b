"""The loop: masked batches, a scoring rule, AdamW, checkpoints that a run goes on from exactly."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import torch

from mlmfast.errors import InputError
from mlmfast.functional import linear_scoring_rule_loss
from mlmfast.kernels.rules import ScoringRule
from mlmfast.scheduling import pack
from mlmfast.training.batches import DROPOUT, HELD_OUT, MASKS, random_of, rows_of_step
from mlmfast.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from mlmfast.training.evaluation import evaluate
from mlmfast.training.masking import MaskedBatch, Vocabulary, masked_batch
from mlmfast.training.metrics_file import MetricsFile
from mlmfast.training.model import TrainedModel
from mlmfast.training.optimiser import adamw, set_learning_rate
from mlmfast.training.output import RunFolder
from mlmfast.training.rows import TrainingRows
from mlmfast.training.schedule import learning_rate
from mlmfast.training.settings import MaskingSettings, TrainingSettings
from mlmfast.types import JsonRecord


class Listener(Protocol):
    """What is told of a run as it goes."""

    def started(self, step: int) -> None:
        """Steps done already when the run begins."""

    def stepped(self, record: JsonRecord) -> None:
        """After every step, with its line of the metrics file."""

    def evaluated(self, record: JsonRecord) -> None:
        """After every evaluation, with its line of the metrics file."""

    def saved(self, step: int) -> None:
        """After every checkpoint."""


class Trainer:
    """Tunes a model in place, keeping its state in a folder."""

    def __init__(
        self,
        model: TrainedModel,
        vocabulary: Vocabulary,
        rows: TrainingRows,
        held_out: TrainingRows | None,
        settings: TrainingSettings,
        folder: RunFolder,
    ) -> None:
        """Raises SettingsError for freezing that does not fit, InputError for held-out texts too few."""
        self._model = model
        self._vocabulary = vocabulary
        self._rows = rows
        self._settings = settings
        self._folder = folder
        model.freeze(embeddings=settings.freeze_embeddings, layers=settings.freeze_layers)
        self._optimiser = adamw(model.huggingface, settings.weight_decay)
        self._held_out = None if held_out is None else self._masked_once(held_out)

    def run(self, metrics: MetricsFile, listener: Listener) -> int:
        """All steps not done yet; how many were done before.

        Raises TrainingError for a loss, gradient or weights that are not finite: the last checkpoint stays.
        Raises OutputError if the folder cannot be written or its checkpoint not be read.
        """
        settings = self._settings
        devices = [self._model.device] if self._model.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            begun = self._restore(metrics)
            listener.started(begun)
            if begun == 0:
                self._evaluate(0, metrics, listener)
            self._model.huggingface.train()
            for step in range(begun + 1, settings.steps + 1):
                record = self._step(step)
                metrics.add(record)
                listener.stepped(record)
                last = step == settings.steps
                if last or (settings.evaluate_every and step % settings.evaluate_every == 0):
                    self._evaluate(step, metrics, listener)
                if last or step % settings.checkpoint_every == 0:
                    self._save(step, metrics)
                    listener.saved(step)
            self._model.huggingface.eval()
        return begun

    def _step(self, step: int) -> JsonRecord:
        settings = self._settings
        indices = rows_of_step(self._rows.num_rows, settings.batch_size, settings.seed, step)
        batch = masked_batch(
            self._rows,
            indices,
            settings.masking,
            self._vocabulary,
            random_of(settings.seed, MASKS, step),
        )
        rule = settings.rule_at(step)
        rate = learning_rate(step, settings.steps, settings.schedule)
        self._optimiser.zero_grad(set_to_none=True)
        loss = 0.0
        for number, rows in enumerate(pack(np.diff(batch.offsets), settings.max_batch_tokens)):
            part = batch.part(rows)
            if part.num_targets:
                seed = random_of(settings.seed, DROPOUT, step, number).integers(2**63)
                torch.manual_seed(int(seed))
                loss += self._backward(part, rule, batch.num_targets)
        norm = float(
            torch.nn.utils.clip_grad_norm_(self._model.huggingface.parameters(), settings.max_gradient_norm)
        )
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise self._folder.diverged(step, f"the loss is {loss} and the norm of its gradient {norm}")
        set_learning_rate(self._optimiser, rate)
        self._optimiser.step()
        return {
            "step": step,
            "rule": rule.name,
            "loss": loss if batch.num_targets else None,
            "learning_rate": rate,
            "gradient_norm": norm,
            "num_targets": batch.num_targets,
        }

    def _backward(self, part: MaskedBatch, rule: ScoringRule, num_targets: int) -> float:
        """Adds the gradient of the part's share of the step's loss, a mean over num_targets; the share."""
        with self._autocast():
            features, targets = self._model.features(part)
            total = linear_scoring_rule_loss(
                features,
                self._model.weight,
                targets,
                linear_bias=self._model.bias,
                rule=rule.name,
                alpha=rule.alpha,
                smoothing=rule.smoothing,
                masked_log=rule.masked_log,
                reduction="sum",
            )
        share = total / num_targets
        share.backward()  # type: ignore[no-untyped-call]
        return float(share.detach())

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(
            self._model.device.type, torch.bfloat16, enabled=self._settings.precision == "bfloat16"
        )

    def _evaluate(self, step: int, metrics: MetricsFile, listener: Listener) -> None:
        if self._held_out is None:
            return
        found = evaluate(self._model, self._held_out, self._settings.max_batch_tokens)
        if not math.isfinite(found.log_loss):
            raise self._folder.diverged(step, f"the held-out log-loss is {found.log_loss}")
        record = {"step": step, "held_out": found.record()}
        metrics.add(record)
        listener.evaluated(record)

    def _masked_once(self, held_out: TrainingRows) -> MaskedBatch:
        """The held-out rows with the masks they keep in every run, each target seen as the mask token."""
        masking = self._settings.masking
        always = MaskingSettings(masking.probability, 1.0, 0.0, masking.whole_word)
        batch = masked_batch(
            held_out, np.arange(held_out.num_rows), always, self._vocabulary, random_of(0, HELD_OUT)
        )
        if not batch.num_targets:
            raise InputError(
                f"the held-out texts have {held_out.num_tokens} tokens, of which none came to be masked; "
                "give more of them"
            )
        return batch

    def _save(self, step: int, metrics: MetricsFile) -> None:
        if not all(bool(p.isfinite().all()) for p in self._model.huggingface.parameters()):
            raise self._folder.diverged(step, "weights are no longer finite")
        write_checkpoint(
            self._folder.checkpoint,
            Checkpoint(
                step=step,
                model=self._model.huggingface.state_dict(),
                optimiser=self._optimiser.state_dict(),
                metrics_bytes=metrics.sync(),
                settings_sha256=self._folder.settings_sha256,
            ),
        )

    def _restore(self, metrics: MetricsFile) -> int:
        """The state of the checkpoint, if there is one; steps done."""
        found = read_checkpoint(self._folder.checkpoint, self._folder.settings_sha256)
        if found is None:
            metrics.cut(0)
            return 0
        self._model.huggingface.load_state_dict(found.model)
        self._optimiser.load_state_dict(found.optimiser)
        metrics.cut(found.metrics_bytes)
        return found.step
