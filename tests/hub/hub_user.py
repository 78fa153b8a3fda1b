"""A user of the hub: processes of their own, because huggingface_hub reads its settings when imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from hub_server import Hub

TEXTS = ["the people of the nation", "hope"]


@dataclass(frozen=True)
class User:
    """Someone with a cache of their own, at `home`, and the hub at `hub`."""

    hub: Hub
    home: Path

    @property
    def cache(self) -> Path:
        return self.home / "hub"

    def load(self, *requests: dict[str, object], **settings: str) -> list[dict[str, object]]:
        """For each request, the arguments of mlmfast.load: scores of TEXTS and the revision, or the error.

        settings: environment variables.
        """
        run = self._run(["load"], json.dumps(requests), settings)
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)

    def score(self, *arguments: object, **settings: str) -> subprocess.CompletedProcess[str]:
        """`mlmfast score` on TEXTS."""
        return self._run(["score", "--workers", "1", *map(str, arguments)], "\n".join(TEXTS), settings)

    def _run(
        self, arguments: list[str], stdin: str, settings: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
            "HF_ENDPOINT": self.hub.url,
            "HF_HOME": str(self.home),
            # Seconds. After fewer a busy machine's client asks again, which would count as fetched twice.
            "HF_HUB_ETAG_TIMEOUT": "60",
            "HF_HUB_DOWNLOAD_TIMEOUT": "60",
            "OMP_NUM_THREADS": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            **settings,
        }
        return subprocess.run(
            [sys.executable, __file__, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment,
            timeout=120,
        )


def load_all(requests: list[dict[str, object]]) -> list[dict[str, object]]:
    import mlmfast

    answers: list[dict[str, object]] = []
    for request in requests:
        try:
            with mlmfast.load(**{"workers": 1, **request}) as scorer:
                scores = [result.score for result in scorer.score(TEXTS)]
                answers.append({"scores": scores, "revision": scorer.describe()["revision"]})
        except mlmfast.errors.ModelError as error:
            answers.append({"error": str(error)})
    return answers


if __name__ == "__main__":
    time.sleep = lambda seconds: None  # the client's waits before it tries again
    if sys.argv[1] == "load":
        print(json.dumps(load_all(json.load(sys.stdin))))
    else:
        from mlmfast.cli import main

        main()
