"""Where a model's files are: the embedded model, a local folder, or a hub id."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from mlmfast.errors import ModelError

EMBEDDED_MODEL = "mlmfast-mini-en"
EMBEDDED_STUDENT = "mlmfast-mini-en-student"
DATA_FOLDER = Path(__file__).resolve().parent.parent / "data"
EMBEDDED_FOLDER = DATA_FOLDER / EMBEDDED_MODEL
EMBEDDED = {EMBEDDED_MODEL: EMBEDDED_FOLDER, EMBEDDED_STUDENT: DATA_FOLDER / EMBEDDED_STUDENT}
"""The folders of the models that come with the package."""

HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
HUB_FILES = ("*.json", "*.safetensors", "vocab.txt", "merges.txt", "*.model")
PICKLES = ("*.bin",)


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

    Hub files are cached by huggingface_hub, whose offline mode (HF_HUB_OFFLINE=1) is respected. Only
    safetensors weights are fetched unless allow_pickle. Raises ModelError.
    """
    if model is None:
        model = EMBEDDED_MODEL
    if not isinstance(model, (str, os.PathLike)) or not (name := os.fspath(model)):
        raise ModelError(f"model is {model!r}; expected a folder, a hub id, or None for the embedded model")
    if name in EMBEDDED:
        if revision is not None:
            raise ModelError(f"the embedded model has no revision {revision!r}; leave it out or name a model")
        return ModelSource(name, EMBEDDED[name])
    folder = Path(name).expanduser()
    if folder.is_dir():
        if revision is not None:
            raise ModelError(f"{name} is a local folder, which has no revision {revision!r}; leave it out")
        return ModelSource(name, folder)
    if folder.exists():
        raise ModelError(f"{name} is a file; expected a model's folder (config.json and weights) or a hub id")
    if not HUB_ID.fullmatch(name):
        raise ModelError(
            f"no folder {name}, and it is not a hub id such as 'bert-base-uncased' or 'org/name'"
        )
    return _from_hub(name, revision, allow_pickle)


def embedded_for(model: str | os.PathLike[str] | None, masking: str | None) -> str | os.PathLike[str] | None:
    """The model to load for a masking: the embedded student for `student` where none is named."""
    return EMBEDDED_STUDENT if masking == "student" and model in (None, EMBEDDED_MODEL) else model


def _from_hub(name: str, revision: str | None, allow_pickle: bool) -> ModelSource:
    import huggingface_hub

    try:
        folder = Path(
            huggingface_hub.snapshot_download(
                name, revision=revision, allow_patterns=list(HUB_FILES + (PICKLES if allow_pickle else ()))
            )
        )
    except Exception as error:  # the client raises its own, its transport's and OSError
        at = f" at revision {revision!r}" if revision else ""
        raise ModelError(
            f"{name!r} is not a folder here, and the hub gave no model of that name{at} "
            f"({type(error).__name__}: {_first_line(error)}); give a folder with config.json and weights, "
            "a hub id, or no model for the embedded one"
        ) from error
    # The snapshot folder is named by the commit the revision stands for.
    return ModelSource(name, folder, folder.name)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]
