"""The workers of the contestants of packed_timings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from packed_contestants import COMPILED
from worker import LateError, Worker, WorkerError

ROUND_SECONDS = 20


class ContestantWorkers:
    """One each, and of the compiled one for each model. In a dry run one for all.

    A contestant that is late once is left out of what else there is on that model.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._workers: dict[str, Worker] = {}
        self._late: dict[tuple[str, Path], str] = {}

    def prepare(
        self, names: Sequence[str], folder: Path, texts: Sequence[str], seconds: float
    ) -> dict[str, dict[str, Any]]:
        """By name what packed_contestants.prepare gives, or an error; several at once but in a dry run."""
        arguments = {"folder": str(folder), "texts": texts, "device": self._device}
        found = {}
        for group in [[name] for name in names] if self._device == "cpu" else [list(names)]:
            for name in group:
                if (name, folder) not in self._late:
                    self._worker(name, folder).send("prepare", name=name, **arguments)
            found |= {name: self._reply(name, folder, seconds) for name in group}
        return found

    def timed(self, name: str, folder: Path) -> dict[str, Any]:
        """What packed_contestants.timed gives, or an error."""
        self._worker(name, folder).send("timed", name=name, device=self._device)
        return self._reply(name, folder, ROUND_SECONDS)

    def release(self, names: Iterable[str], folder: Path) -> None:
        for name in names:
            self._worker(name, folder).send("release", device=self._device)
            self._reply(name, folder, ROUND_SECONDS)

    def _worker(self, name: str, folder: Path) -> Worker:
        key = "all" if self._device == "cpu" else f"{name} {folder}" if name == COMPILED else name
        return self._workers.setdefault(key, Worker("packed_contestants"))

    def _reply(self, name: str, folder: Path, seconds: float) -> dict[str, Any]:
        if (name, folder) in self._late:
            return {"error": self._late[name, folder]}
        try:
            found: dict[str, Any] = self._worker(name, folder).reply(seconds)
        except LateError as error:
            self._late[name, folder] = str(error)
            return {"error": str(error)}
        except WorkerError as error:
            return {"error": str(error)}
        return found

    def __enter__(self) -> ContestantWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.close()
