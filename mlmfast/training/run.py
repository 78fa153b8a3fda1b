"""One run from a model's files to a folder with the tuned model."""

from __future__ import annotations

import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import torch

from mlmfast.engines.base import ModelFiles
from mlmfast.engines.torch_device import choose_device
from mlmfast.engines.torch_load import quiet_transformers
from mlmfast.errors import SettingsError, TrainingError
from mlmfast.training.masking import Vocabulary
from mlmfast.training.metrics_file import MetricsFile, read_metrics
from mlmfast.training.model import TrainedModel
from mlmfast.training.output import RunFolder
from mlmfast.training.rows import TrainingRows
from mlmfast.training.settings import TrainingSettings
from mlmfast.training.trainer import Listener, Trainer
from mlmfast.types import JsonRecord

NOT_COMPARED = ("checkpoint_every",)
"""Settings that change nothing of what a run computes."""


def finetune(
    files: ModelFiles,
    rows: TrainingRows,
    held_out: TrainingRows | None,
    settings: TrainingSettings,
    output: Path,
    listener: Listener,
    *,
    device: str | None = None,
    resume: bool = False,
) -> JsonRecord:
    """Tunes a model on `rows` and writes it to the folder `output`; the run's summary.

    With `resume` an unfinished run of the same settings goes on from its last checkpoint, on the same
    machine and number of threads bit for bit as if it had not stopped; a complete one is left as it is.

    Raises SettingsError for settings that do not fit, ModelError, OutputError for a folder that is not
    this run's, TrainingError for a loss or weights that are not finite and a run without any target.
    """
    if held_out is None and settings.evaluate_every is not None:
        raise SettingsError("there is no held-out text to evaluate with; give --held-out FILE")
    folder = RunFolder(output, describe(files, rows, held_out, settings, device), resume=resume)
    if folder.is_complete:
        folder.drop_checkpoint()
        return folder.summary()
    started = time.monotonic()
    model = TrainedModel(files, device=device)
    trainer = Trainer(model, Vocabulary.of(files.tokenizer), rows, held_out, settings, folder)
    folder.make()
    with MetricsFile(folder.metrics) as metrics:
        folder.start()
        num_before = trainer.run(metrics, listener)
        records = read_metrics(folder.metrics)
        if not any(record.get("num_targets") for record in records):
            raise TrainingError(
                "no step had a target, so nothing was learnt; take a higher "
                "--mask-probability, a larger --batch-size or longer texts"
            )
        evaluations = [record["held_out"] for record in records if "held_out" in record]
        summary: JsonRecord = {
            "steps": settings.steps,
            "held_out_before": evaluations[0] if evaluations else None,
            "held_out_after": evaluations[-1] if evaluations else None,
            "steps_of_this_run": settings.steps - num_before,
            "seconds_of_this_run": time.monotonic() - started,
        }
        with quiet_transformers():
            folder.write_model(model.huggingface.save_pretrained, files.source.folder)
        folder.complete(len(records), summary)
    return summary


def describe(
    files: ModelFiles,
    rows: TrainingRows,
    held_out: TrainingRows | None,
    settings: TrainingSettings,
    device: str | None,
) -> JsonRecord:
    """What makes the tuned model, for its meta; "environment" is what may differ when a run is resumed."""
    compared = asdict(settings)
    environment = {name: compared.pop(name) for name in NOT_COMPARED}
    packages = ("mlmfast", "tokenizers", "torch", "transformers")
    return {
        "environment": {"threads": torch.get_num_threads(), **environment},
        "model": files.source.name,
        "revision": files.source.revision,
        "weights_sha256": files.checkpoint.checksum(),
        "model_type": files.config.model_type,
        "device": str(choose_device(device)),
        "versions": {name: version(name) for name in packages},
        "texts": describe_rows(rows),
        "held_out": None if held_out is None else describe_rows(held_out),
        **compared,
    }


def describe_rows(rows: TrainingRows) -> JsonRecord:
    return {"rows": rows.num_rows, "tokens": rows.num_tokens, "sha256": rows.sha256()}
