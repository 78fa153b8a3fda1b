"""A finished student as a model folder."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from mlmfast.engines.base import ModelFiles
from mlmfast.errors import SettingsError, TrainingError
from mlmfast.models.checkpoint import INDEX, SINGLE
from mlmfast.training.distillation.student import Student
from mlmfast.training.model import embeddings_of
from mlmfast.types import JsonRecord

OWN = "student.safetensors"
"""The weights of a student that shares its embeddings: its index names this file and the teacher's."""
DTYPES = {"float16": torch.float16, "float32": torch.float32}


def shared_embeddings(student: Student, files: ModelFiles, output: Path) -> dict[str, str]:
    """The files of the teacher that hold the student's embeddings, by tensor, as an index in `output` names
    them; {} for a student that keeps its own.

    Raises SettingsError if the teacher's folder does not lie beside `output`, or names them otherwise.
    """
    if not student.settings.share_embeddings:
        return {}
    folder = files.source.folder.resolve()
    if folder.parent != output.resolve().parent or folder == output.resolve():
        raise SettingsError(
            f"--share-embeddings: {folder} is not a folder beside {output}; put the two in one folder"
        )
    places = {}
    for name in embeddings_of(student.encoder):
        published = f"{student.prefix}.{name}"
        entry = files.checkpoint.tensors.get(published)
        if entry is None:
            raise SettingsError(f"--share-embeddings: {folder} has no tensor {published} to share")
        if entry.file.resolve().parent != folder:
            raise SettingsError(f"--share-embeddings: {folder} takes {published} from another folder itself")
        places[published] = f"../{folder.name}/{entry.file.name}"
    return places


def round_weights(student: Student, shared: dict[str, str]) -> None:
    """Makes the student's weights those that will be written. Raises TrainingError if they overflow."""
    dtype = DTYPES[student.settings.weights]
    with torch.no_grad():
        for name, parameter in student.encoder.named_parameters():
            if f"{student.prefix}.{name}" not in shared:
                parameter.copy_(parameter.to(dtype))
                if not bool(parameter.isfinite().all()):
                    raise TrainingError(f"{name} has weights too large for {student.settings.weights}; "
                                        "write float32 ones with --weights float32")  # fmt: skip


def write_student(folder: Path, student: Student, shared: dict[str, str], teacher: JsonRecord) -> None:
    """Weights and config.json, into a folder made here. The head stays float32. Raises OSError."""
    folder.mkdir(parents=True)
    dtype = DTYPES[student.settings.weights]
    own = {
        name: _stored(values, torch.float32 if name.startswith("student.") else dtype)
        for name, values in student.tensors().items()
        if name not in shared
    }
    save_file(own, folder / (OWN if shared else SINGLE), metadata={"format": "pt"})
    if shared:
        index = {"metadata": {}, "weight_map": {**dict.fromkeys(own, OWN), **shared}}
        (folder / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    config = student.description(teacher)
    for key in ("dtype", "torch_dtype"):
        if key in config:
            config[key] = student.settings.weights
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _stored(values: Tensor, dtype: torch.dtype) -> Tensor:
    return values.detach().to("cpu", dtype).contiguous()
