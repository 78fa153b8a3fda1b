"""Functions of a module in a process of its own: `python worker.py MODULE`.

A kernel that writes where it must not leaves the device unusable to its process, and a compilation may take
for ever: what runs in a worker takes nothing else down with it. Answers each line of standard input,
{"function", "arguments"}, with {"result"} or {"error"}.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import IO, Any, cast

MOST_SAID = 2000
"""Characters of what a worker said last."""


class WorkerError(Exception):
    """A call failed, or ended its process."""


class LateError(WorkerError):
    """A call took too long."""


class Worker:
    """A process that starts with the first call, and again with the call after one that failed."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: subprocess.Popen[str] | None = None

    def ask(self, function: str, seconds: float, **arguments: object) -> Any:
        """See send and reply."""
        self.send(function, **arguments)
        return self.reply(seconds)

    def send(self, function: str, **arguments: object) -> None:
        """Begins a call; arguments and result are what JSON can say."""
        if self._process is None:
            self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed with the process
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve()), self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                text=True,
            )
        request = json.dumps({"function": function, "arguments": arguments})
        with contextlib.suppress(BrokenPipeError):  # of a process that ended; reply says so
            print(request, file=self._process.stdin, flush=True)

    def reply(self, seconds: float) -> Any:
        """The result of the call sent last. Raises WorkerError."""
        assert self._process is not None
        replies = cast(IO[str], self._process.stdout)
        ready, _, _ = select.select([replies], [], [], max(seconds, 0))
        if not ready:
            self.close()
            raise LateError(f"not finished after {seconds:.0f} seconds")
        line = replies.readline()
        if not line:
            status = self._process.wait()
            self._said.seek(0)
            said = self._said.read()[-MOST_SAID:]
            self.close()
            raise WorkerError(f"ended with status {status}: {said}")
        answer = json.loads(line)
        if "error" in answer:
            self.close()
            raise WorkerError(answer["error"])
        return answer["result"]

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._said.close()
            self._process = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not end up among the replies
    for line in sys.stdin:
        request = json.loads(line)
        try:
            module = importlib.import_module(sys.argv[1])
            answer = {"result": getattr(module, request["function"])(**request["arguments"])}
        except Exception:
            answer = {"error": traceback.format_exc()[-MOST_SAID:]}
        print(json.dumps(answer), file=replies, flush=True)


if __name__ == "__main__":
    main()
