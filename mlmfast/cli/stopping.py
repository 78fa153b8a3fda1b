"""What happens when a run is interrupted or terminated."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

SKIPPED_RECORDS = 3
INTERRUPTED = 130
TERMINATED = 143


def end_on_terminate() -> None:
    """SIGTERM ends this process as an interrupt does: outputs are closed first."""
    signal.signal(signal.SIGTERM, _terminate)


@contextmanager
def stop_reported(done: Callable[[], str], output: str) -> Iterator[None]:
    """An interrupted or terminated block ends the command with its exit status, saying what was `done`."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        how = "" if output == "-" else f"; {output} holds what is done, continue with --resume"
        say(f"stopped after {done()}{how}", quiet=False)
        raise typer.Exit(TERMINATED if isinstance(stop, SystemExit) else INTERRUPTED) from None


def say(message: str, quiet: bool) -> None:
    if not quiet:
        print(f"mlmfast: {message}", file=sys.stderr)


def _terminate(signal_number: int, frame: object) -> None:
    # Who sends one may send another, as timeout(1) does: it would end the closing of outputs.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(TERMINATED)
