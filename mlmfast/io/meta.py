"""PATH.meta.json, which says how the output at PATH was made and how far it has come."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mlmfast.errors import OutputError
from mlmfast.io.json_text import to_json

FORMAT_VERSION = 1

# May differ on resume: where a run takes place (host, number of workers) does not change its scores.
# Versions are compared: scores of two versions in one file could not be told apart.
NOT_COMPARED = "environment"


@dataclass(frozen=True)
class Progress:
    """What is safely in the output: records, bytes (any header included) and whether that is all.

    input_sha256 is over the input records answered so far, each after its length; totals are the caller's
    running figures over them.
    """

    records: int = 0
    bytes: int = 0
    input_sha256: str = field(default_factory=lambda: hashlib.sha256().hexdigest())
    complete: bool = False
    totals: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Meta:
    settings: dict[str, Any]
    progress: Progress
    summary: dict[str, Any] | None = None


def meta_path(path: Path) -> Path:
    return path.with_name(path.name + ".meta.json")


def read_meta(path: Path) -> Meta | None:
    """The meta beside the output `path`, or None. Raises OutputError if what lies there is not one."""
    try:
        content = meta_path(path).read_bytes()
    except FileNotFoundError:
        return None
    try:
        value = json.loads(content)
        version = value["format_version"]
        if version == FORMAT_VERSION:
            return parse_meta(value)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise OutputError(
            f"{meta_path(path)} does not describe an output of ours; move it away, or choose another output"
        ) from error
    raise OutputError(
        f"{meta_path(path)} has format version {version!r}, but this version reads {FORMAT_VERSION}; "
        "go on with the version that wrote it, or delete it and the output"
    )


def parse_meta(value: dict[str, Any]) -> Meta:
    """The meta of a JSON object. Raises ValueError, LookupError or TypeError."""
    meta = Meta(value["settings"], Progress(**value["progress"]), value["summary"])
    kinds = [type(given) for given in asdict(meta.progress).values()]
    if kinds != [int, int, str, bool, dict] or not isinstance(meta.settings, dict):
        raise TypeError(f"progress {meta.progress} or settings of a wrong type")
    return meta


def write_meta(path: Path, meta: Meta) -> None:
    """Replaces the meta beside `path`. Raises OSError."""
    content = to_json({"format_version": FORMAT_VERSION, **asdict(meta)}, indented=True) + "\n"
    write_whole(meta_path(path), content)


def write_whole(target: Path, content: str) -> None:
    """Replaces a small file as a whole: after a crash there is the old one or the new one. Raises OSError."""
    temporary = target.with_name(target.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(content.encode("utf-8"))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, target)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Makes a rename in `folder` durable, on systems and file systems that can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def settings_differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What differs between two settings but for their "environment", as "name: OLD, now NEW"."""
    before, after = flattened(old), flattened(new)
    return [
        f"{name}: {before.get(name, 'absent')}, now {after.get(name, 'absent')}"
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


def flattened(settings: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Every compared value as JSON, under its dotted name."""
    flat: dict[str, str] = {}
    for name, value in settings.items():
        if not prefix and name == NOT_COMPARED:
            continue
        if isinstance(value, dict) and value:
            flat |= flattened(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = to_json(value)
    return flat
