"""A script in a process of its own that answers each line of JSON with one."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

HERE = Path(__file__).resolve().parent
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
}
QUIET = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "1"}


class Process:
    """A running script of this folder."""

    def __init__(self, name: str, python: Path, script: str, arguments: Sequence[str]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [str(python), str(HERE / script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ONE_THREAD, **QUIET},
        )
        self._requests = cast(IO[str], self._process.stdin)
        self._replies = cast(IO[str], self._process.stdout)

    def send(self, request: Mapping[str, object]) -> None:
        print(json.dumps(request), file=self._requests, flush=True)

    def reply(self) -> dict[str, Any]:
        """Raises SystemExit if the process has ended."""
        line = self._replies.readline()
        if not line:
            raise SystemExit(f"{self.name!r} ended with status {self._process.wait()}")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def ask(self, request: Mapping[str, object]) -> dict[str, Any]:
        self.send(request)
        return self.reply()

    def close(self) -> None:
        self._requests.close()
        self._process.wait()
        self._replies.close()
