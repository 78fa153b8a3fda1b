from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import Hub
from hub_user import User


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as served:
        yield served


@pytest.fixture
def user(hub: Hub, tmp_path: Path) -> User:
    return User(hub, tmp_path / "home")
