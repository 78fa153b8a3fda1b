"""Where a model's files are: the embedded model, a local folder, or a hub id."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from mlmfast.errors import ModelError
from mlmfast.models.hub import hub_folder

EMBEDDED_MODEL = "mlmfast-mini-en"
EMBEDDED_STUDENT = "mlmfast-mini-en-student"
DATA_FOLDER = Path(__file__).resolve().parent.parent / "data"
EMBEDDED_FOLDER = DATA_FOLDER / EMBEDDED_MODEL
EMBEDDED = {EMBEDDED_MODEL: EMBEDDED_FOLDER, EMBEDDED_STUDENT: DATA_FOLDER / EMBEDDED_STUDENT}
"""The folders of the models that come with the package."""

HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)


@dataclass(frozen=True)
class ModelSource:
    """A model's folder, the name it was asked for by, and the hub revision it was read at, if any."""

    name: str
    folder: Path
    revision: str | None = None


def resolve(
    model: str | os.PathLike[str] | None = None, *, revision: str | None = None, allow_pickle: bool = False
) -> ModelSource:
    """Find a model: None is the embedded masked one, an existing folder is itself, the rest are hub ids.

    Only safetensors weights are fetched from the hub; pickles too if allow_pickle, where there is nothing
    else. See `hub_folder`. Raises ModelError.
    """
    if model is None:
        model = EMBEDDED_MODEL
    if not isinstance(model, (str, os.PathLike)) or not (name := os.fspath(model)):
        raise ModelError(f"model is {model!r}; expected a folder, a hub id, or None for the embedded model")
    if revision is not None and (not isinstance(revision, str) or not revision.strip(".")):
        raise ModelError(f"revision is {revision!r}; expected a branch, a tag or a whole commit hash")
    if name in EMBEDDED:
        if revision is not None:
            raise ModelError(f"the embedded model has no revision {revision!r}; leave it out or name a model")
        return ModelSource(name, EMBEDDED[name])
    folder = Path(name)
    try:
        folder = folder.expanduser()
        is_folder, is_there = folder.is_dir(), folder.exists()
    except (OSError, RuntimeError) as error:  # too long a name, a place one may not look, a home of nobody
        raise ModelError(
            f"{name}: cannot look for such a folder ({error}); expected one (config.json and weights) or a "
            "hub id"
        ) from error
    if is_folder:
        if revision is not None:
            raise ModelError(f"{name} is a local folder, which has no revision {revision!r}; leave it out")
        return ModelSource(name, folder)
    if is_there:
        raise ModelError(f"{name} is a file; expected a model's folder (config.json and weights) or a hub id")
    if not HUB_ID.fullmatch(name):
        raise ModelError(
            f"no folder {name}, and it is not a hub id such as 'bert-base-uncased' or 'org/name'"
        )
    snapshot = hub_folder(name, revision=revision, allow_pickle=allow_pickle)
    return ModelSource(name, snapshot, snapshot.name)


def embedded_for(model: str | os.PathLike[str] | None, masking: str | None) -> str | os.PathLike[str] | None:
    """The model to load for a masking: the embedded student for `student` where none is named."""
    return EMBEDDED_STUDENT if masking == "student" and model in (None, EMBEDDED_MODEL) else model
