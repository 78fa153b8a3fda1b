"""The wheel holds what a user needs, no more, and scores without torch."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mlmfast.models import EMBEDDED_STUDENT
from mlmfast.models.source import EMBEDDED

ROOT = Path(__file__).parent.parent

SCORE = """
import sys
sys.path.insert(0, {folder!r})
# The editable install of the tree must not answer for the wheel; torch must not be needed.
sys.meta_path = [f for f in sys.meta_path if "Redirecting" not in type(f).__name__]
sys.modules["torch"] = sys.modules["transformers"] = None
import mlmfast
assert mlmfast.__file__.startswith({folder!r}), mlmfast.__file__
print(mlmfast.load().score(["The cat sat on the mat."])[0].score)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    options = ["--wheel-dir", str(folder), f"-Cbuild-dir={folder / 'build'}"]
    subprocess.run([*command, *options, str(ROOT)], check=True)
    return next(folder.glob("mlmfast-*.whl"))


def test_wheel_content(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for needed in ("config.json", "model.safetensors", "tokenizer.json", "README.md", "LICENSE"):
        assert f"mlmfast/data/mlmfast-mini-en/{needed}" in names
    for needed in ("config.json", "student.safetensors", "model.safetensors.index.json", "tokenizer.json"):
        assert f"mlmfast/data/mlmfast-mini-en-student/{needed}" in names
    assert "mlmfast/py.typed" in names
    assert any(n.startswith("mlmfast/_core.") and n.endswith(".so") for n in names)
    folders = {n.split("/")[0] for n in names}
    assert all(f == "mlmfast" or f.endswith((".dist-info", ".libs")) for f in folders), folders


def test_the_embedded_student_is_small() -> None:
    """It takes the embeddings of the embedded model beside it."""
    files = EMBEDDED[EMBEDDED_STUDENT].iterdir()
    assert 10e6 < sum(file.stat().st_size for file in files) <= 12e6


def test_wheel_scores_without_torch(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = SCORE.format(folder=str(tmp_path))
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) == pytest.approx(-18.555, abs=1e-2)
