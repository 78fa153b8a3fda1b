"""As much of the hub's HTTP interface as huggingface_hub needs to download, served from this machine.

Answers as huggingface.co does: the commit of a revision and its files, the tree of a commit, files under
`resolve`, weights after a redirect to where large files lie, parts of files, error codes in headers.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

LARGE = (".safetensors", ".bin", ".onnx")
INFO = re.compile(r"/api/models/(?P<model>[^/]+/[^/]+?)(?:/revision/(?P<revision>[^/]+))?")
TREE = re.compile(r"/api/models/(?P<model>[^/]+/[^/]+)/tree/(?P<revision>[^/]+)")
FILE = re.compile(r"/(?P<model>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")
LARGE_FILE = re.compile(r"/large/(?P<sha256>[0-9a-f]{64})")


@dataclass
class Model:
    """A model's commits, each the content of every file by name, and the branches and tags that name them."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    revisions: dict[str, str] = field(default_factory=dict)

    def commit(self, folder: Path, *revisions: str, **extra: bytes) -> str:
        """Adds a folder's files, and extra ones, as a commit that the revisions stand for from now on."""
        files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())} | extra
        digest = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits[digest] = files
        self.revisions.update(dict.fromkeys(revisions, digest))
        return digest


@dataclass
class Hub:
    """What the server has, what it was asked, and what it does wrong.

    gated: status, 401 or 403, of the files of a model. failing: status of every request whose path holds the
    key. silent: such requests are not answered until the hub closes. broken: bytes of a large file after
    which the connection breaks, times_broken times if that is given, else every time.
    """

    models: dict[str, Model] = field(default_factory=dict)
    gated: dict[str, int] = field(default_factory=dict)
    failing: dict[str, int] = field(default_factory=dict)
    silent: str | None = None
    broken: int | None = None
    times_broken: int | None = None
    requests: list[tuple[str, str]] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Hub:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.hub = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def url_of_large_files(self) -> str:
        """On another host, as on the hub."""
        return f"http://localhost:{self._server.server_port}"

    def add(self, name: str, folder: Path, **extra: bytes) -> str:
        """The files of a folder as a new commit on the branch main."""
        return self.models.setdefault(name, Model()).commit(folder, "main", **extra)

    def fetched(self) -> list[str]:
        """The names of the files downloaded since last asked, each as often as it was."""
        names = [name for method, path in self.requests if method == "GET" for name in self._names(path)]
        self.requests.clear()
        return sorted(names)

    def _names(self, path: str) -> list[str]:
        """The file that a request is for; that of a large one is known by its content."""
        if found := FILE.fullmatch(path):
            return [] if found["file"].endswith(LARGE) else [found["file"]]
        if found := LARGE_FILE.fullmatch(path):
            return [next(name for name, content in self._files() if sha256(content) == found["sha256"])]
        return []

    def _files(self) -> Iterator[tuple[str, bytes]]:
        for model in self.models.values():
            for files in model.commits.values():
                yield from files.items()

    def content(self, digest: str) -> bytes:
        """The large file of a digest."""
        return next(content for _, content in self._files() if sha256(content) == digest)


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    protocol_version = "HTTP/1.1"

    @property
    def hub(self) -> Hub:
        return self.server.hub  # type: ignore[attr-defined,no-any-return]

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        path = urlsplit(self.path).path
        if path.startswith("/api/") and not path.startswith("/api/models/"):
            return self.send(404)  # what the client asks on its own account
        self.hub.requests.append((self.command, path))
        if self.hub.silent is not None and self.hub.silent in path:
            self.hub.closing.wait()
            self.close_connection = True
            return None
        for part, status in self.hub.failing.items():
            if part in path:
                return self.send(status)
        if found := LARGE_FILE.fullmatch(path):
            return self.send_large(found["sha256"])
        for pattern, reply in ((INFO, self.info), (TREE, self.tree), (FILE, self.file)):
            if found := pattern.fullmatch(path):
                return self.reply_about(found, reply)
        return self.send(404)

    def reply_about(self, found: re.Match[str], reply) -> None:
        name, revision = found["model"], unquote(found["revision"] or "main")
        if name not in self.hub.models:
            if "Authorization" in self.headers:
                return self.send(404, {"X-Error-Code": "RepoNotFound"})
            # Private models and those that do not exist look alike to who has not logged in.
            return self.send(401, {"X-Error-Message": "Invalid username or password."})
        model = self.hub.models[name]
        commit = model.revisions.get(revision, revision)
        if commit not in model.commits:
            return self.send(404, {"X-Error-Code": "RevisionNotFound"})
        return reply(name, commit, model.commits[commit], found.groupdict())

    def info(self, name: str, commit: str, files: dict[str, bytes], _: dict[str, str]) -> None:
        siblings = [{"rfilename": file} for file in files]
        self.send_json({"id": name, "modelId": name, "sha": commit, "siblings": siblings})

    def tree(self, name: str, commit: str, files: dict[str, bytes], _: dict[str, str]) -> None:
        entries = []
        for file, content in files.items():
            entry = {"type": "file", "path": file, "size": len(content), "oid": git_hash(content)}
            if file.endswith(LARGE):
                entry["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 130}
            entries.append(entry)
        self.send_json(entries)

    def file(self, name: str, commit: str, files: dict[str, bytes], asked: dict[str, str]) -> None:
        if name in self.hub.gated:
            return self.send(self.hub.gated[name], {"X-Error-Code": "GatedRepo"})
        file, about = asked["file"], {"X-Repo-Commit": commit}
        if file not in files:
            return self.send(404, about | {"X-Error-Code": "EntryNotFound"})
        content = files[file]
        if not file.endswith(LARGE):
            return self.send_file(content, about | {"ETag": f'"{git_hash(content)}"'})
        digest = sha256(content)
        linked = {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(content))}
        return self.send(302, about | linked | {"Location": f"{self.hub.url_of_large_files}/large/{digest}"})

    def send_large(self, digest: str) -> None:
        content = self.hub.content(digest)
        stop = self.hub.broken
        if stop is not None and self.hub.times_broken is not None:
            self.hub.times_broken -= 1
            self.hub.broken = stop if self.hub.times_broken else None
        self.send_file(content, {"ETag": f'"{digest}"'}, stop=stop)

    def send_file(self, content: bytes, headers: dict[str, str], stop: int | None = None) -> None:
        """stop: the place in the file where the connection breaks."""
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        begin = int(asked[1]) if asked else 0
        if asked:
            headers = headers | {"Content-Range": f"bytes {begin}-{len(content) - 1}/{len(content)}"}
        sent = content[begin:]
        if stop is not None:
            self.close_connection = True
        self.send(206 if asked else 200, headers, sent, None if stop is None else max(stop - begin, 0))

    def send_json(self, value: object) -> None:
        self.send(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def send(
        self, status: int, headers: dict[str, str] | None = None, body: bytes = b"", stop: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {
            "Accept-Ranges": "bytes",
            **(headers or {}),
            "Content-Length": str(len(body)),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[:stop])


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
