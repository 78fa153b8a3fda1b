"""Signals that end a command."""

from __future__ import annotations

import os
import signal

import pytest

from mlmfast.cli.stopping import TERMINATED, end_on_terminate


@pytest.fixture(autouse=True)
def restored_handler():
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


def test_a_second_sigterm_does_not_end_what_the_first_began() -> None:
    end_on_terminate()
    with pytest.raises(SystemExit) as stop:
        os.kill(os.getpid(), signal.SIGTERM)
    assert stop.value.code == TERMINATED
    os.kill(os.getpid(), signal.SIGTERM)
