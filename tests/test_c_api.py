"""The C library as it is installed: what it exports, and the C example compiled against it."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from student_models import make_student
from tiny_models import MODELS

import mlmfast

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "cpp"
"""The folder of `make test-cpp`, which has built the library already where that ran before."""
SCRIPTS = Path(sys.executable).parent
EMBEDDED = Path(mlmfast.__file__).parent / "data" / "mlmfast-mini-en"
STRICT_C = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
TEXT = "The cat sat on the mat."


def run(*command: str | Path) -> str:
    return subprocess.run(
        [str(part) for part in command], check=True, text=True, stdout=subprocess.PIPE
    ).stdout


def configure(source: Path, build: Path, *options: str) -> None:
    make = f"-DCMAKE_MAKE_PROGRAM={SCRIPTS / 'ninja'}"
    run(SCRIPTS / "cmake", "-S", source, "-B", build, "-G", "Ninja", make, *options)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the library is installed to."""
    prefix = tmp_path_factory.mktemp("installed")
    configure(
        ROOT, BUILD, "-DCMAKE_BUILD_TYPE=Release", "-DMLMFAST_BUILD_PYTHON=OFF", "-DMLMFAST_BUILD_C_API=ON"
    )
    run(SCRIPTS / "cmake", "--build", BUILD, "--target", "mlmfast")
    run(SCRIPTS / "cmake", "--install", BUILD, "--prefix", prefix)
    return prefix


@pytest.fixture(scope="module")
def library(installed: Path) -> Path:
    return next(installed.glob("lib*/libmlmfast.so"))


@pytest.fixture(scope="module")
def example(installed: Path, library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's program."""
    program = tmp_path_factory.mktemp("example") / "score_tokens"
    include, link = f"-I{installed / 'include'}", [f"-L{library.parent}", f"-Wl,-rpath,{library.parent}"]
    run("cc", *STRICT_C, include, ROOT / "examples" / "score_tokens.c", *link, "-lmlmfast", "-o", program)
    return program


def test_the_header_is_strict_c_and_cpp(installed: Path, tmp_path: Path) -> None:
    source = tmp_path / "structs.c"
    source.write_text(
        "#include <mlmfast/c_api.h>\n"
        "const mlmfast_load_options options = MLMFAST_LOAD_OPTIONS_INIT;\n"
        "const mlmfast_info info = MLMFAST_INFO_INIT;\n"
        "const mlmfast_batch batch = MLMFAST_BATCH_INIT;\n"
        "const mlmfast_outputs outputs = MLMFAST_OUTPUTS_INIT;\n"
    )
    include = f"-I{installed / 'include'}"
    run("cc", *STRICT_C, include, "-fsyntax-only", source)
    run("c++", "-x", "c++", "-std=c++11", *STRICT_C[1:], include, "-fsyntax-only", source)


def test_the_example_prints_the_scores_of_python(example: Path) -> None:
    with mlmfast.load(EMBEDDED, engine="native", precision="float32", workers=1) as scorer:
        expected = scorer.score([TEXT])[0]
        ids = scorer.files.tokenizer.encode([TEXT]).input_ids
    lines = [line.split() for line in run(example, EMBEDDED, *map(str, ids)).splitlines()]
    assert [line[0] for line in lines] == [*map(str, ids[1:-1]), "sum"]
    found = [float(line[1]) for line in lines]
    assert found == pytest.approx([*(t.log_prob for t in expected.tokens), expected.pll], abs=1e-5)


def test_the_example_says_what_is_wrong(example: Path) -> None:
    def failure(*arguments: str | Path) -> str:
        done = subprocess.run([example, *arguments], text=True, capture_output=True)
        assert done.returncode != 0
        assert done.stdout == ""
        return done.stderr

    assert "no config.json" in failure("no-such-folder", "2", "7", "3")
    assert "expected 0 to 19999" in failure(EMBEDDED, "2", "20000", "3")
    for word in ("x", "7x", "", "-7", "7000000000", "1e3"):
        assert f"score_tokens: {word} is not a token id" in failure(EMBEDDED, "2", word, "3")
    assert "model_type" in failure(MODELS / "gpt2", "2", "7", "3")


def test_only_the_api_is_exported(library: Path) -> None:
    symbols = {
        line.split()[-1].split("@")[0] for line in run("nm", "-D", "--defined-only", library).splitlines()
    }
    header = (ROOT / "csrc" / "include" / "mlmfast" / "c_api.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"^MLMFAST_API .*?(mlmfast_\w+)\(", header, re.MULTILINE))
    assert len(declared) == 8
    assert {s for s in symbols if not s.startswith("MLMFAST_")} == declared


def test_the_installed_files(installed: Path) -> None:
    files = {p.name for p in installed.rglob("*") if p.is_file()}
    release = mlmfast.__version__
    packages = {"mlmfast-config.cmake", "mlmfast-config-release.cmake"}
    assert files == {"c_api.h", f"libmlmfast.so.{release}", "libmlmfast.so.1", "libmlmfast.so"} | packages


def test_cmake_finds_the_package(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\n"
        "project(user LANGUAGES C)\n"
        "find_package(mlmfast CONFIG REQUIRED)\n"
        f"add_executable(score_tokens {ROOT / 'examples' / 'score_tokens.c'})\n"
        "target_link_libraries(score_tokens PRIVATE mlmfast::mlmfast)\n"
    )
    build = tmp_path / "build"
    configure(tmp_path, build, f"-DCMAKE_PREFIX_PATH={installed}")
    run(SCRIPTS / "cmake", "--build", build)
    assert "sum" in run(build / "score_tokens", MODELS / "bert", "2", "7", "3")


def test_other_languages_load_it(library: Path) -> None:
    """Through ctypes, which knows nothing of the header."""
    api = ctypes.CDLL(str(library))
    api.mlmfast_version.restype = api.mlmfast_last_error.restype = ctypes.c_char_p
    assert api.mlmfast_version().decode() == mlmfast.__version__
    assert api.mlmfast_api_version() == 1
    model, ids = ctypes.c_void_p(), np.array([2, 7, 9, 3], dtype=np.int32)
    log_probs = np.zeros(4, dtype=np.float32)
    assert api.mlmfast_load(str(MODELS / "bert").encode(), None, ctypes.byref(model)) == 0
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (ids, log_probs)]
    length = ctypes.c_int64(4)
    assert api.mlmfast_score_text(model, pointers[0], length, None, length, pointers[1]) == 0
    assert (log_probs < 0).all()
    assert api.mlmfast_score_text(model, None, length, None, length, pointers[1]) == 1
    assert api.mlmfast_last_error().decode() == "mlmfast_score_text: input_ids must not be NULL"
    api.mlmfast_free(model)


@pytest.mark.parametrize("head", ["token", "cls"])
@pytest.mark.parametrize("name", ["bert", "modernbert", "esm2"])
def test_a_student_gives_its_values_there(library: Path, tmp_path: Path, name: str, head: str) -> None:
    folder = make_student(tmp_path / "student", name, head)
    text = "MKTAYIAK" if name == "esm2" else TEXT
    with mlmfast.load(folder, engine="native", precision="float32", workers=1) as scorer:
        result = scorer.score([text])[0]
        ids = scorer.files.tokenizer.encode([text]).input_ids
    api = ctypes.CDLL(str(library))
    api.mlmfast_last_error.restype = ctypes.c_char_p
    model = ctypes.c_void_p()
    assert api.mlmfast_load(str(folder).encode(), None, ctypes.byref(model)) == 0
    inner = np.arange(1, len(ids) - 1, dtype=np.int32) if head == "token" else np.zeros(1, dtype=np.int32)
    values = np.full(len(inner), np.nan, dtype=np.float32)

    def score(positions: np.ndarray | None, count: int) -> int:
        places = None if positions is None else positions.ctypes.data_as(ctypes.c_void_p)
        return api.mlmfast_score_text(
            model,
            ids.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_int64(len(ids)),
            places,
            ctypes.c_int64(count),
            values.ctypes.data_as(ctypes.c_void_p),
        )

    assert score(inner, len(inner)) == 0
    expected = [t.log_prob for t in result.tokens] if head == "token" else [np.float32(result.score)]
    assert values.tolist() == expected
    assert score(inner[:0], 0) == 0
    if head == "cls":
        assert score(inner + 1, 1) == 1
        assert b"a student of head cls has one value, at position 0" in api.mlmfast_last_error()
    api.mlmfast_free(model)
