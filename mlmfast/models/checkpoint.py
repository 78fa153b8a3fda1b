"""The weight files of a model folder, seen without loading them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlmfast.errors import ModelError

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLE, PICKLE_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
INDEXES, PICKLES = (INDEX, PICKLE_INDEX), (PICKLE, PICKLE_INDEX)
WEIGHTS = (SINGLE, INDEX, *PICKLES)
"""In order of preference."""
GRAPH, EXTERNAL_DATA, DESCRIPTION = "model.onnx", "model.onnx.data", "mlmfast_onnx.json"
"""The files of an ONNX export, whose weights are in its graph or beside it."""
SHARD = re.compile(r"(\.\./(?!\.\.?/)[^/]+/)?(?!\.\.?$)[^/]+")
"""A file beside the index, or in a folder beside the model's, whose tensors two models share."""


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
    """The weight files of one model; `is_pickle` files cannot be looked into.

    taken: the tensors that are the model's, for a file that belongs to another model, too.
    """

    files: tuple[Path, ...]
    is_pickle: bool = False
    taken: Mapping[Path, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, *, allow_pickle: bool = False) -> Checkpoint:
        """Raises ModelError if there are no weights, or only pickles and they are not allowed."""
        names = [name for name in WEIGHTS if (folder / name).is_file()]
        weights = weights_among(names, folder, allow_pickle=allow_pickle)
        is_pickle = weights in PICKLES
        if weights in INDEXES:
            return cls._sharded(folder / weights, is_pickle=is_pickle)
        return cls((folder / weights,), is_pickle)

    @classmethod
    def _sharded(cls, index: Path, *, is_pickle: bool = False) -> Checkpoint:
        names = _weight_map(index)
        files = {shard: index.parent / shard for shard in sorted(set(names.values()))}
        missing = [shard for shard, file in files.items() if not file.is_file()]
        if missing:
            raise ModelError(f"{index}: names files that are not there: {', '.join(missing)}")
        taken = {
            file: frozenset(name for name, place in names.items() if place == shard)
            for shard, file in files.items()
            if "/" in shard
        }
        return cls(tuple(files.values()), is_pickle, taken)

    @cached_property
    def tensors(self) -> dict[str, TensorEntry]:
        """Name -> entry, over all shards; empty for pickles. Raises ModelError for a damaged file."""
        if self.is_pickle:
            return {}
        entries: dict[str, TensorEntry] = {}
        for file in self.files:
            stored = _read_header(file)
            taken = self.taken.get(file, frozenset(stored))
            if absent := sorted(taken - stored.keys()):
                raise ModelError(f"{file}: has no tensor {absent[0]}, which the index of a model says it has")
            if twice := sorted(taken & entries.keys()):
                raise ModelError(f"{file}: tensor {twice[0]} is in another file of the model, too")
            entries.update({name: entry for name, entry in stored.items() if name in taken})
        return entries

    def checksum(self) -> str:
        """sha256 over the weight files, in order."""
        digest = hashlib.sha256()
        for file in self.files:
            with open(file, "rb") as stream:
                while block := stream.read(1 << 22):
                    digest.update(block)
        return digest.hexdigest()


def weights_among(names: Collection[str], place: object, *, allow_pickle: bool = False) -> str:
    """The weight file of a model, or the index of several, by the names of its files; place: where they are.

    Raises ModelError if there are no weights, or only pickles and they are not allowed.
    """
    found = [name for name in WEIGHTS if name in names]
    if not found:
        raise ModelError(f"{place}: no weights; expected {SINGLE} or {INDEX}")
    if found[0] in PICKLES and not allow_pickle:
        raise ModelError(
            f"{place}: only pickled weights ({found[0]}), which can run code when loaded; "
            "convert them to safetensors, or allow them with allow_pickle=True (--allow-pickle)"
        )
    return found[0]


def shards_of(index: Path) -> list[str]:
    """The names of the weight files of an index. Raises ModelError."""
    return sorted(set(_weight_map(index).values()))


def _weight_map(index: Path) -> dict[str, str]:
    """The file of each tensor, as the index has it."""
    try:
        names = dict(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{index}: not a readable index of weight files ({error})") from error
    for name, shard in names.items():
        if not isinstance(shard, str) or SHARD.fullmatch(shard) is None:
            raise ModelError(
                f"{index}: tensor {name} is in {shard!r}; expected a file beside the index, or ../FOLDER/FILE"
            )
    return names


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
