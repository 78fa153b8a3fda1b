"""The weight files of a model folder, seen without loading them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlmfast.errors import ModelError

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLE, PICKLE_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"


@dataclass(frozen=True)
class TensorEntry:
    """A tensor in a safetensors file: its type name there, shape, and bytes [begin, end) of the file."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    def raw(self) -> NDArray[np.uint8]:
        """The tensor's bytes, memory-mapped."""
        return np.memmap(
            self.file, dtype=np.uint8, mode="r", offset=self.begin, shape=(self.end - self.begin,)
        )


@dataclass(frozen=True)
class Checkpoint:
    """The weight files of one model; `is_pickle` files cannot be looked into."""

    files: tuple[Path, ...]
    is_pickle: bool = False

    @classmethod
    def of(cls, folder: Path, *, allow_pickle: bool = False) -> Checkpoint:
        """Raises ModelError if there are no weights, or only pickles and they are not allowed."""
        if (folder / SINGLE).is_file():
            return cls((folder / SINGLE,))
        if (folder / INDEX).is_file():
            return cls(_shards(folder / INDEX))
        pickles = [p for p in (folder / PICKLE, folder / PICKLE_INDEX) if p.is_file()]
        if not pickles:
            raise ModelError(f"{folder}: no weights; expected {SINGLE} or {INDEX}")
        if not allow_pickle:
            raise ModelError(
                f"{folder}: only pickled weights ({pickles[0].name}), which can run code when loaded; "
                "convert them to safetensors, or allow them with allow_pickle=True (--allow-pickle)"
            )
        files = _shards(pickles[0]) if pickles[0].name == PICKLE_INDEX else (pickles[0],)
        return cls(files, is_pickle=True)

    @cached_property
    def tensors(self) -> dict[str, TensorEntry]:
        """Name -> entry, over all shards; empty for pickles. Raises ModelError for a damaged file."""
        if self.is_pickle:
            return {}
        entries: dict[str, TensorEntry] = {}
        for file in self.files:
            entries.update(_read_header(file))
        return entries

    def checksum(self) -> str:
        """sha256 over the weight files, in order."""
        digest = hashlib.sha256()
        for file in self.files:
            with open(file, "rb") as stream:
                while block := stream.read(1 << 22):
                    digest.update(block)
        return digest.hexdigest()


def _shards(index: Path) -> tuple[Path, ...]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index}: not a readable index of weight files ({error})") from error
    files = tuple(index.parent / name for name in names)
    missing = [f.name for f in files if not f.is_file()]
    if missing:
        raise ModelError(f"{index}: names files that are not there: {', '.join(missing)}")
    return files


def _read_header(file: Path) -> dict[str, TensorEntry]:
    size = file.stat().st_size
    try:
        with open(file, "rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 0 < length <= size - 8:
                raise ValueError(f"header of {length} bytes in a file of {size}")
            header = json.loads(stream.read(length))
        begin = 8 + length
        entries = {
            name: TensorEntry(
                file,
                entry["dtype"],
                tuple(entry["shape"]),
                begin + entry["data_offsets"][0],
                begin + entry["data_offsets"][1],
            )
            for name, entry in header.items()
            if name != "__metadata__"
        }
        if any(not begin <= e.begin <= e.end <= size for e in entries.values()):
            raise ValueError("it ends before its tensors do; the file was cut short")
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ModelError(f"{file}: not a whole safetensors file ({error})") from error
    return entries
