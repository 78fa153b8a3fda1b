"""Models of the hub: the files that scoring reads, fetched into the cache of huggingface_hub."""

from __future__ import annotations

import glob
import logging
from collections.abc import Collection
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlmfast.errors import ModelError
from mlmfast.models.checkpoint import DESCRIPTION, EXTERNAL_DATA, GRAPH, INDEXES, shards_of, weights_among

if TYPE_CHECKING:
    from huggingface_hub import ModelInfo
    from huggingface_hub.utils.tqdm import tqdm

logger = logging.getLogger(__name__)

CONFIG = "config.json"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "*.model",
)


def hub_folder(name: str, *, revision: str | None = None, allow_pickle: bool = False) -> Path:
    """The folder of a hub model in the cache, its name the commit that the revision stands for.

    The hub is asked what it has, and what the cache lacks is fetched; where it cannot be asked, or it is not
    to be (HF_HUB_OFFLINE=1), what was fetched earlier is taken. Raises ModelError.
    """
    from huggingface_hub.errors import RevisionNotFoundError

    try:
        info = _ask(name, revision)
    except RevisionNotFoundError as error:
        raise _refusal(name, revision, error) from error
    except Exception as error:  # the client raises its own, its transport's and OSError
        if (folder := _cached(name, CONFIG, revision)) is None:
            raise _refusal(name, revision, error) from error
        logger.log(
            _urgency(error), "%s: read from the cache, commit %s; %s", name, folder.name, _reason(error)
        )
        return folder
    names = [sibling.rfilename for sibling in info.siblings or () if "/" not in sibling.rfilename]
    weights = _weights(name, names, allow_pickle)
    wanted = [file for file in names if any(fnmatch(file, pattern) for pattern in (CONFIG, *TOKENIZER_FILES))]
    try:
        folder = _fetched(name, revision, info.sha, [*wanted, *weights])
        shards = {shard for file in weights if file in INDEXES for shard in shards_of(folder / file)}
        if shards:
            folder = _fetched(name, folder.name, folder.name, shards.intersection(names))
    except ModelError:
        raise
    except Exception as error:  # as above
        raise _refusal(name, revision, error) from error
    return folder


def _ask(name: str, revision: str | None) -> ModelInfo:
    """The commit of a revision and the names of its files."""
    from huggingface_hub import HfApi, constants

    return HfApi().model_info(name, revision=revision, timeout=constants.HF_HUB_ETAG_TIMEOUT)


def _weights(name: str, names: Collection[str], allow_pickle: bool) -> list[str]:
    """Of a model's files its weights or their index, or the graph of an ONNX export. Raises ModelError."""
    if DESCRIPTION in names:
        return [file for file in (DESCRIPTION, GRAPH, EXTERNAL_DATA) if file in names]
    return [weights_among(names, name, allow_pickle=allow_pickle)]


def _fetched(name: str, revision: str | None, commit: str | None, files: Collection[str]) -> Path:
    """The cache's folder of a revision with these files in it, fetched where they are not."""
    from huggingface_hub import snapshot_download

    folders = {_cached(name, file, revision) for file in files}
    if len(folders) == 1 and (folder := folders.pop()) is not None and folder.name == commit:
        return folder
    patterns = [glob.escape(file) for file in files]
    return Path(snapshot_download(name, revision=revision, allow_patterns=patterns, tqdm_class=_bar()))


def _bar() -> type[tqdm]:
    """The client's progress bar, but for terminals alone."""
    from huggingface_hub.utils.tqdm import tqdm

    class TerminalBar(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{"disable": None, **options})  # type: ignore[no-untyped-call]

    return TerminalBar


def _cached(name: str, file: str, revision: str | None) -> Path | None:
    """The cache's folder of a revision if it holds the file, without asking the hub."""
    from huggingface_hub import try_to_load_from_cache

    try:
        found = try_to_load_from_cache(name, file, revision=revision)
    except ValueError:  # not a hub id after all
        return None
    return Path(found).parent if isinstance(found, str) else None


def _urgency(error: Exception) -> int:
    from huggingface_hub.errors import OfflineModeIsEnabled

    return logging.INFO if isinstance(error, OfflineModeIsEnabled) else logging.WARNING


def _status(error: BaseException) -> int | None:
    """Of the hub's answer, if it was one."""
    from huggingface_hub.errors import HfHubHTTPError

    # Older clients have such errors without an answer.
    return getattr(error.response, "status_code", None) if isinstance(error, HfHubHTTPError) else None


def _refusal(name: str, revision: str | None, error: Exception) -> ModelError:
    at = f" at revision {revision!r}" if revision else ""
    return ModelError(
        f"{name!r} is not a folder here, and the hub gave no model of that name{at}: {_reason(error)}"
    )


def _reason(error: BaseException) -> str:
    """What kept the hub from answering, and what to do."""
    from huggingface_hub import errors

    while isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, errors.OfflineModeIsEnabled):
        return (
            "HF_HUB_OFFLINE is set and it is not in the cache; load it once with a network, or give a folder"
        )
    if isinstance(error, errors.GatedRepoError):
        return "it is gated; ask for access on its page, then log in with `hf auth login` or set HF_TOKEN"
    if isinstance(error, errors.RepositoryNotFoundError) or _status(error) == 401:
        return (
            "it has none, or a private one, for which log in with `hf auth login` or set HF_TOKEN; "
            "give a hub id, a folder with config.json and weights, or no model for the embedded one"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return "there is no such revision; give a branch, a tag or a whole commit hash"
    message = (str(error).strip().splitlines() or ["no message"])[0]
    return f"{type(error).__name__}: {message}; try again, or give a folder with config.json and weights"
