from __future__ import annotations

from collections.abc import Iterator

import pytest
from command_line import CommandLine


@pytest.fixture(scope="session")
def mlmfast_command() -> Iterator[CommandLine]:
    command = CommandLine()
    yield command
    command.close()
