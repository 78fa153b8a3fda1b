"""What the hub does wrong, or cannot give: a clear error, an exit status of 1, and no broken file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hub_server import Hub
from hub_user import User
from tiny_models import MODELS

NAME = "someone/tiny"


def error_of(user: User, *options: str, **settings: str) -> str:
    """The error of the command, which must be its last line, and its status 1."""
    run = user.score("--model", NAME, *options, **settings)
    assert run.returncode == 1
    assert run.stdout == ""
    assert "Traceback" not in run.stderr
    assert run.stderr.splitlines()[-1].startswith("mlmfast: error: ")
    return run.stderr.splitlines()[-1].removeprefix("mlmfast: error: ")


def test_an_unknown_model(hub: Hub, user: User) -> None:
    error = error_of(user)
    assert "'someone/tiny' is not a folder here, and the hub gave no model of that name: it has none" in error
    assert "hf auth login" in error
    assert user.load({"model": NAME}, HF_TOKEN="hf_x") == [{"error": error}]


def test_an_unknown_revision(hub: Hub, user: User) -> None:
    hub.add(NAME, MODELS / "bert")
    assert "at revision 'v9': there is no such revision" in error_of(user, "--revision", "v9")


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_model(hub: Hub, user: User, status: int) -> None:
    hub.add(NAME, MODELS / "bert")
    hub.gated[NAME] = status
    assert "it is gated; ask for access on its page" in error_of(user)


@pytest.mark.parametrize("part", ["/api/models", "/tree/", "/resolve/"])
def test_a_server_error(hub: Hub, user: User, part: str) -> None:
    hub.add(NAME, MODELS / "bert")
    hub.failing[part] = 500
    assert "500 Internal Server Error" in error_of(user)


@pytest.mark.parametrize("part", ["/api/models", "/large/"])
def test_a_server_that_does_not_answer(hub: Hub, user: User, part: str) -> None:
    hub.add(NAME, MODELS / "bert")
    hub.silent = part
    assert "Timeout" in error_of(user, HF_HUB_ETAG_TIMEOUT="1", HF_HUB_DOWNLOAD_TIMEOUT="1")


def test_no_server(hub: Hub, user: User) -> None:
    assert "ConnectError" in error_of(user, HF_ENDPOINT="http://127.0.0.1:9")


def test_offline(hub: Hub, user: User) -> None:
    hub.add(NAME, MODELS / "bert")
    assert "HF_HUB_OFFLINE is set and it is not in the cache" in error_of(user, HF_HUB_OFFLINE="1")
    (online,) = user.load({"model": NAME})
    hub.requests.clear()
    cached, unseen = user.load({"model": NAME}, {"model": NAME, "revision": "v9"}, HF_HUB_OFFLINE="1")
    assert hub.requests == []
    assert cached == online
    assert "HF_HUB_OFFLINE is set" in str(unseen["error"])


def test_a_hub_that_fails_does_not_keep_from_the_cache(hub: Hub, user: User) -> None:
    hub.add(NAME, MODELS / "bert")
    (expected,) = user.load({"model": NAME})
    hub.failing["/api/models"] = 500
    run = user.score("--model", NAME, "--quiet")
    assert run.returncode == 0
    assert [json.loads(line)["score"] for line in run.stdout.splitlines()] == expected["scores"]
    assert (
        f"read from the cache, commit {expected['revision']}; HfHubHTTPError: Server error '500" in run.stderr
    )


def test_a_connection_that_breaks_within_the_weights(hub: Hub, user: User) -> None:
    """No broken file stays, a cache without weights is not taken for whole, and the next load repairs it."""
    hub.add(NAME, MODELS / "bert")
    hub.broken = 50_000
    error = error_of(user)
    assert "RemoteProtocolError" in error
    assert "try again" in error
    repository = user.cache / "models--someone--tiny"
    weights = (MODELS / "bert" / "model.safetensors").stat().st_size
    assert all(path.stat().st_size < 50_000 for path in repository.rglob("*") if path.is_file())
    assert not list(repository.rglob("model.safetensors"))
    assert "no weights" in str(user.load({"model": NAME}, HF_HUB_OFFLINE="1")[0]["error"])
    hub.broken = None
    assert len(user.load({"model": NAME})[0]["scores"]) == 2  # type: ignore[arg-type]
    (found,) = repository.rglob("model.safetensors")
    assert found.stat().st_size == weights


def test_a_download_that_breaks_goes_on_where_it_stopped(hub: Hub, user: User) -> None:
    hub.add(NAME, MODELS / "bert")
    hub.broken, hub.times_broken = 50_000, 2
    (answer,) = user.load({"model": NAME})
    assert "scores" in answer
    assert sum(path.startswith("/large/") for method, path in hub.requests if method == "GET") == 3


def test_a_cache_that_cannot_be_written(hub: Hub, user: User, tmp_path: Path) -> None:
    hub.add(NAME, MODELS / "bert")
    (tmp_path / "file").write_text("")
    error = error_of(user, HF_HOME=str(tmp_path / "file"))
    assert "NotADirectoryError" in error or "FileExistsError" in error
