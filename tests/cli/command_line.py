"""Runs of `mlmfast` as a user starts them, and what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parent.parent / "data"
MODELS = DATA / "models"
BERT = MODELS / "bert"
MAX_LENGTH = 64
SENTENCES = (DATA / "text" / "inaugural.txt").read_text("utf-8").splitlines()

# No test may reach the network; threads of several libraries would only wait for each other.
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True)
class Finished:
    """A run that has ended. status: as of a shell, but -N for death by signal N. max_rss: in bytes."""

    status: int
    out: bytes
    err: str
    max_rss: int

    @property
    def records(self) -> list[dict]:
        return read_jsonl(self.out)

    @property
    def rows(self) -> list[dict[str, str]]:
        return read_tsv(self.out)


class CommandLine:
    """Starts command lines, one at a time, each in its own process."""

    def __init__(self, imports: tuple[str, ...] = ()) -> None:
        """imports: modules that runs need beyond those of `score`, imported once."""
        self._folder = tempfile.TemporaryDirectory()
        self._server = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("fork_server.py"), BERT, *imports],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ENVIRONMENT,
            start_new_session=True,
        )
        self._running: Running | None = None

    def close(self) -> None:
        self._end_what_a_failed_test_left()
        self._server.communicate()
        self._folder.cleanup()

    def start(
        self, *args: object, stdin: bytes | Path = b"", stdout: Path | None = None, stderr: Path | None = None
    ) -> Running:
        """The run of `mlmfast *args`. Streams are files (named pipes and terminals too) or kept here."""
        self._end_what_a_failed_test_left()
        folder = Path(self._folder.name)
        if isinstance(stdin, bytes):
            (folder / "in").write_bytes(stdin)
            stdin = folder / "in"
        streams = {"stdin": stdin, "stdout": stdout or folder / "out", "stderr": stderr or folder / "err"}
        request = {"args": list(map(str, args)), "folder": str(folder), "environment": {"COLUMNS": "120"}}
        self._server.stdin.write(json.dumps(request | {k: str(v) for k, v in streams.items()}) + "\n")
        self._server.stdin.flush()
        self._running = Running(self._server, int(self._server.stdout.readline()), folder, stdout, stderr)
        return self._running

    def _end_what_a_failed_test_left(self) -> None:
        if self._running is not None and not self._running.ended:
            with suppress(ProcessLookupError):
                self._running.send(signal.SIGKILL)
            self._running.wait()

    def run(self, *args: object, **streams: bytes | Path) -> Finished:
        return self.start(*args, **streams).wait()

    def score(self, *args: object, model: Path | str | None = BERT, **streams: bytes | Path) -> Finished:
        """`mlmfast score` with a tiny model and one thread."""
        return self.start_score(*args, model=model, **streams).wait()

    def start_score(self, *args: object, model: Path | str | None = BERT, **streams: bytes | Path) -> Running:
        chosen = () if model is None else ("--model", model)
        return self.start("score", "--workers", 1, *chosen, *args, **streams)


@dataclass
class Running:
    """A run under way, until `wait`."""

    server: subprocess.Popen[str]
    pid: int
    folder: Path
    stdout: Path | None
    stderr: Path | None
    ended: bool = False

    def send(self, signal_number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # it may just have ended
            os.kill(self.pid, signal_number)

    def wait(self) -> Finished:
        self.ended = True
        status, max_rss = map(int, self.server.stdout.readline().split())
        out = (self.folder / "out").read_bytes() if self.stdout is None else b""
        err = (self.folder / "err").read_text("utf-8") if self.stderr is None else ""
        return Finished(status, out, err, max_rss)


class Terminal:
    """A terminal for one run's stderr; `shown` is all it was sent."""

    def __enter__(self) -> Terminal:
        self._master, self._slave = os.openpty()
        self.path = Path(os.ttyname(self._slave))
        self._shown = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._slave)
        self._reader.join()
        os.close(self._master)
        self.shown = self._shown.decode("utf-8")

    def _read(self) -> None:
        try:
            while block := os.read(self._master, 4096):
                self._shown += block
        except OSError:  # the last user of the terminal has closed it
            pass


def read_jsonl(content: bytes) -> list[dict]:
    """The objects of `content`, whose lines must all be whole and standard JSON."""
    assert not content or content.endswith(b"\n")
    return [json.loads(line, parse_constant=reject) for line in content.decode("utf-8").split("\n")[:-1]]


def reject(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def read_tsv(content: bytes) -> list[dict[str, str]]:
    """The rows of `content` by the names in its header."""
    assert content.endswith(b"\n")
    header, *rows = (line.split("\t") for line in content.decode("utf-8").split("\n")[:-1])
    return [dict(zip(header, row, strict=True)) for row in rows]


def read_meta(output: Path) -> dict:
    return json.loads(output.with_name(output.name + ".meta.json").read_text("utf-8"))


def num_safe(output: Path) -> int:
    """Records that a kill leaves on disk."""
    meta = output.with_name(output.name + ".meta.json")
    return read_meta(output)["progress"]["records"] if meta.exists() else 0


def lines(*texts: str) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode("utf-8")
