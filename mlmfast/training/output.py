"""The folder of a run: its settings, its state, at the end the model."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError

from mlmfast.errors import OutputError, TrainingError
from mlmfast.io.json_text import to_json
from mlmfast.io.meta import (
    Meta,
    Progress,
    flattened,
    meta_path,
    read_meta,
    settings_differences,
    sync_folder,
    write_meta,
)
from mlmfast.io.output import os_errors_named
from mlmfast.training.checkpoint import temporary_path
from mlmfast.types import JsonRecord

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "*.model",
)


class RunFolder:
    """`training.meta.json` says how the model was made and whether it is whole; `metrics.jsonl` and
    `checkpoint.pt` are the run's; beside them come the model's files."""

    def __init__(self, path: Path, settings: JsonRecord, *, resume: bool) -> None:
        """settings: JSON that says what makes the model; on resume it must be that of the folder, but for
        "environment". Raises OutputError for a folder that is not this run's to write. Nothing is written."""
        self.path = path
        self.settings: JsonRecord = json.loads(to_json(settings))
        self.metrics = path / "metrics.jsonl"
        self.checkpoint = path / "checkpoint.pt"
        self._meta = path / "training"
        self._model = path / "model.tmp"
        if path.exists() and not path.is_dir():
            raise OutputError(f"{path} is a file; give a folder for the output")
        found = read_meta(self._meta)
        if found is None:
            self._require_empty()
        self.is_complete = found is not None and self._continues(found, resume)

    def make(self) -> None:
        """Makes the folder, so that its metrics file can be locked. Raises OutputError."""
        with os_errors_named(self.path):
            self.path.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Says in the folder what will come, once its metrics file is locked. Raises OutputError."""
        with os_errors_named(self.path):
            # What a killed run was writing may be what fills the disk.
            temporary_path(self.checkpoint).unlink(missing_ok=True)
            shutil.rmtree(self._model, ignore_errors=True)
            write_meta(self._meta, Meta(self.settings, Progress()))

    @property
    def settings_sha256(self) -> str:
        """Of the settings that a resumed run shares."""
        return hashlib.sha256(to_json(flattened(self.settings)).encode("utf-8")).hexdigest()

    def diverged(self, step: int, what: str) -> TrainingError:
        """The error of a run whose loss or weights are no longer finite."""
        kept = f"{self.checkpoint} stays" if self.checkpoint.exists() else "no checkpoint was written yet"
        return TrainingError(
            f"step {step}: {what}; {kept}. Take a lower --learning-rate, a longer warm-up or float32"
        )

    def write_model(self, save: Callable[[Path], object], tokenizer_folder: Path) -> None:
        """Writes a model's files, which `save` puts into a folder it makes, and its tokenizer's."""
        with os_errors_named(self.path):
            try:
                save(self._model)
            except SafetensorError as error:
                raise OSError(str(error)) from error
            for pattern in TOKENIZER_FILES:
                for file in sorted(tokenizer_folder.glob(pattern)):
                    shutil.copyfile(file, self._model / file.name)
            for file in sorted(self._model.iterdir()):
                shutil.copymode(self.metrics, file)  # safetensors files come readable for their owner alone
                with file.open("rb") as written:
                    os.fsync(written.fileno())
                os.replace(file, self.path / file.name)
            self._model.rmdir()
            sync_folder(self.path)

    def complete(self, num_records: int, summary: JsonRecord) -> None:
        """Marks the folder complete, once the model is written. num_records: lines of the metrics file."""
        with os_errors_named(self.path):
            progress = Progress(
                records=num_records,
                bytes=self.metrics.stat().st_size,
                input_sha256=self.settings["texts"]["sha256"],
                complete=True,
            )
            write_meta(self._meta, Meta(self.settings, progress, summary))
        self.drop_checkpoint()

    def drop_checkpoint(self) -> None:
        """For a complete folder; again if a run died just before it. Raises OutputError."""
        with os_errors_named(self.checkpoint):
            self.checkpoint.unlink(missing_ok=True)

    def summary(self) -> JsonRecord:
        """What a complete run said at its end."""
        found = read_meta(self._meta)
        return {} if found is None or found.summary is None else found.summary

    def _require_empty(self) -> None:
        # A run that died before its meta was in place leaves an empty metrics file and half a meta.
        half = temporary_path(meta_path(self._meta))
        there = sorted(
            file.name
            for file in (self.path.iterdir() if self.path.exists() else ())
            if file != half and not (file == self.metrics and file.stat().st_size == 0)
        )
        if there:
            raise OutputError(
                f"{self.path} is not empty ({', '.join(there[:3])}) and has no {meta_path(self._meta).name}, "
                "so it may not be ours; choose another output"
            )

    def _continues(self, found: Meta, resume: bool) -> bool:
        """Whether the run is complete already."""
        if not resume:
            if found.progress.complete:
                raise OutputError(
                    f"{self.path} holds a finished model; choose another output, or delete it to start over"
                )
            if self.checkpoint.exists():
                raise OutputError(
                    f"{self.path} is the output of an unfinished run; continue it with --resume, or delete "
                    "it to start over"
                )
            return False
        differences = settings_differences(found.settings, self.settings)
        if differences:
            raise OutputError(
                f"{self.path} was started with other settings ({'; '.join(differences)}); "
                "resume with the same, or delete it to start over"
            )
        return found.progress.complete
