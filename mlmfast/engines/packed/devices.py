"""The packed engine on one GPU, or on all: then in a process for each, as one process cannot keep several
GPUs supplied."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

import torch

from mlmfast.engines.base import ModelFiles, Outputs
from mlmfast.engines.packed.device_process import Loaded
from mlmfast.engines.packed.engine import PackedEngine
from mlmfast.engines.packed.lanes import NUM_LANES
from mlmfast.errors import MlmfastError, SettingsError
from mlmfast.types import JsonRecord, RowBatch, TargetOutputs

PROGRAM = "import sys; sys.path[:] = {path}; from {module} import main; main()"
"""Finds modules where this process does, and none of that name in the folder that it runs in."""
PATIENCE = 10
"""Seconds that a process gets to end by itself."""


def open_packed(
    files: ModelFiles, *, precision: str, device: str | None, on_gpu: bool = False
) -> PackedEngine | DeviceProcesses:
    """On the device named, else on all visible GPUs, else on the CPU unless on_gpu. Raises as they do."""
    if device is None:
        num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if num_gpus > 1:
            return DeviceProcesses(files, precision, [f"cuda:{index}" for index in range(num_gpus)])
        if on_gpu:
            device = "cuda"
    return PackedEngine(files, precision=precision, device=device)


class DeviceProcess:
    """A process and its connections, each for one batch at a time."""

    def __init__(self, device: str) -> None:
        self.device = device
        pairs = [socket.socketpair() for _ in range(NUM_LANES)]
        self.connections = [Connection(own.detach()) for own, _ in pairs]
        descriptors = [other.fileno() for _, other in pairs]
        program = PROGRAM.format(path=list(map(str, sys.path)), module=Loaded.__module__)
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, descriptors)],
            stdin=subprocess.DEVNULL,
            pass_fds=descriptors,
        )
        for _, other in pairs:
            other.close()

    def send(self, connection: Connection, question: object) -> None:
        """Raises MlmfastError if the process is gone."""
        with self._told_if_gone():
            connection.send(question)

    def receive(self, connection: Connection) -> Any:
        """The answer. Raises it if it is an error; MlmfastError if the process is gone."""
        with self._told_if_gone():
            answer = connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def end(self) -> None:
        """Waits for it, once its connections are closed."""
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @contextlib.contextmanager
    def _told_if_gone(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError) as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE)
            how = describe_exit(self._process.returncode)
            raise MlmfastError(
                f"the process that scored on {self.device} has ended ({how}; the standard error stream has "
                "what it said): load the model again, or name one device, such as device='cuda:0', to score "
                "in this process"
            ) from error


class DeviceProcesses:
    """See engines.base.Engine. A batch goes to whichever process is free."""

    def __init__(self, files: ModelFiles, precision: str, devices: Sequence[str]) -> None:
        """Raises as PackedEngine does, and MlmfastError where a process ends."""
        self._devices = devices
        self._owner = os.getpid()
        processes: list[DeviceProcess] = []
        self._end = weakref.finalize(self, end_all, processes)
        try:
            processes.extend(DeviceProcess(device) for device in devices)
            for process in processes:
                process.send(process.connections[0], (files, precision, process.device))
            loaded: list[Loaded] = [process.receive(process.connections[0]) for process in processes]
        except BaseException:
            self.close()
            raise
        self._description = loaded[0].description
        self.max_length = loaded[0].max_length
        self.max_batch_tokens = min(one.max_batch_tokens for one in loaded)
        self.max_workers: int | None = NUM_LANES * len(processes)
        self._free: SimpleQueue[tuple[DeviceProcess, Connection]] = SimpleQueue()
        for lane in range(NUM_LANES):
            for process in processes:
                self._free.put((process, process.connections[lane]))

    def prepare_thread(self) -> None:
        """See engines.base.Engine. The calling threads only wait."""

    def score(self, batch: RowBatch, outputs: Outputs) -> TargetOutputs:
        """See engines.base.Engine. Raises MlmfastError where a process has ended."""
        if not self._end.alive or os.getpid() != self._owner:
            raise SettingsError(
                "this scorer was closed, or is another process's; load another in this process"
            )
        process, connection = self._free.get()
        try:
            process.send(connection, (batch, outputs))
            found: TargetOutputs = process.receive(connection)
        except KeyboardInterrupt:
            connection.close()  # The answer still to come would be taken for the next batch's.
            raise
        finally:
            self._free.put((process, connection))
        return found

    def describe(self) -> JsonRecord:
        """See engines.base.Engine."""
        return self._description | {"device": ", ".join(self._devices)}

    def close(self) -> None:
        """Ends the processes."""
        self._end()


def end_all(processes: Sequence[DeviceProcess]) -> None:
    for process in processes:
        for connection in process.connections:
            connection.close()
    for process in processes:
        process.end()


def describe_exit(code: int | None) -> str:
    if code is None:
        return "or no longer answers"
    return f"exit status {code}" if code >= 0 else f"signal {-code}"
