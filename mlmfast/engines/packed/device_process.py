"""A process that runs the packed engine on one device, for packed.devices.

Started as a program of its own, as multiprocessing would run the caller's script again in every process that
it spawns. Arguments: file descriptors of connections. The first brings what to load; then each, batches.
"""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection

from mlmfast.engines.base import Engine, ModelFiles
from mlmfast.errors import MlmfastError
from mlmfast.types import JsonRecord


@dataclass(frozen=True)
class Loaded:
    """What the other side must know of an engine."""

    max_length: int
    max_batch_tokens: int
    description: JsonRecord


def main() -> None:
    # The other side decides when it ends, by closing the connections.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connections = [Connection(int(descriptor)) for descriptor in sys.argv[1:]]
    engine = load(connections[0])
    if engine is not None:
        for connection in connections:
            threading.Thread(target=serve, args=(engine, connection)).start()


def load(connection: Connection) -> Engine | None:
    """The engine asked for, of which a Loaded is sent; or else its error is, and None returned."""
    from mlmfast.engines.packed.engine import PackedEngine

    files: ModelFiles
    files, precision, device = connection.recv()
    try:
        engine = PackedEngine(files, precision=precision, device=device)
    except Exception as error:
        send(connection, sendable(error))
        return None
    loaded = Loaded(engine.max_length, engine.max_batch_tokens, engine.describe())
    return engine if send(connection, loaded) else None


def serve(engine: Engine, connection: Connection) -> None:
    """Answers batches with their results or errors, until the other side is gone."""
    engine.prepare_thread()
    while True:
        try:
            batch, outputs = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer: object = engine.score(batch, outputs)
        except Exception as error:
            answer = sendable(error)
        if not send(connection, answer):
            return


def send(connection: Connection, answer: object) -> bool:
    """False where the other side is gone."""
    try:
        connection.send(answer)
    except OSError:
        return False
    return True


def sendable(error: Exception) -> Exception:
    """One that comes out as it went in: of other people's only what they would print."""
    return (
        error if isinstance(error, MlmfastError) else RuntimeError("".join(traceback.format_exception(error)))
    )
