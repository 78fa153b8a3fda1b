"""A model to a folder with its graph, which is there once it is checked."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from mlmfast.engines.base import ModelFiles
from mlmfast.engines.onnx_folder import KINDS, PRECISIONS
from mlmfast.errors import ModelError, OutputError, SettingsError, UnsupportedModelError
from mlmfast.extras import require
from mlmfast.io.output import os_errors_named
from mlmfast.models import EMBEDDED_STUDENT
from mlmfast.models.checkpoint import GRAPH
from mlmfast.scorer import open_model
from mlmfast.types import JsonRecord


def export_model(
    model: str | os.PathLike[str] | None = None,
    *,
    kind: str,
    output: str | os.PathLike[str],
    precision: str = "float32",
    revision: str | None = None,
    allow_pickle: bool = False,
) -> JsonRecord:
    """Writes a model as an ONNX graph to the folder `output`, and returns what mlmfast_onnx.json there says.

    model, revision, allow_pickle: as for `mlmfast.load`, but that None is the embedded student for a
    single-pass graph. kind: `masked` (rows and targets to log-probabilities), `pll` (a sentence to the
    log-probabilities of its tokens, each masked alone), or `single-pass` (a student's scores).
    precision: `float32`, `float16`, `int8`.

    Raises SettingsError, ModelError (also where graph and model disagree), UnsupportedModelError,
    OutputError, MissingExtraError. A failed export leaves nothing.
    """
    for name, value, known in (("kind", kind, KINDS), ("precision", precision, PRECISIONS)):
        if value not in known:
            raise SettingsError(f"unknown {name} {value!r}; expected one of {', '.join(known)}")
    for package, extra in (("torch", "torch"), ("transformers", "torch"), ("onnx", "onnx")):
        require(package, extra=extra, purpose="export")
    for package in ("onnxscript", "onnxruntime"):
        require(package, extra="onnx", purpose="export")
    folder = Path(output).resolve()  # what is put in its place is a folder, not a link to one
    _require_free(folder)
    if model is None and kind == "single-pass":
        model = EMBEDDED_STUDENT
    files = open_model(model, revision=revision, allow_pickle=allow_pickle)
    _require_fitting(files, kind)
    with os_errors_named(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as made:
            graph = Path(made) / "graph"
            graph.mkdir()  # with the permissions of a folder of the user's own, which `made` has not
            values = _fill(graph, files, kind, precision)
            os.replace(graph, folder)
    return values


def _fill(folder: Path, files: ModelFiles, kind: str, precision: str) -> JsonRecord:
    import onnx.checker

    from mlmfast.export.agreement import check_samples, expected_values, graph_values, require_agreement
    from mlmfast.export.description import describe, with_agreement, write_description
    from mlmfast.export.framing import framing_of
    from mlmfast.export.graphs import first_line, write_graph
    from mlmfast.export.model_files import copy_model_files

    name = files.source.name
    framing = framing_of(name, files.tokenizer)
    samples = check_samples(files, framing, kind)
    # One model is in memory at a time.
    expected = expected_values(files, samples)
    write_graph(files, kind, precision, framing, folder)
    try:
        onnx.checker.check_model(folder / GRAPH, full_check=True)
    except onnx.checker.ValidationError as error:
        raise ModelError(
            f"{name}: its graph is not valid ({first_line(error)}); nothing was written"
        ) from error
    copy_model_files(files, folder)
    values = describe(files, kind, precision, framing)
    write_description(folder, values)
    agreement = require_agreement(name, precision, samples, expected, graph_values(folder, samples))
    values = with_agreement(values, agreement)
    write_description(folder, values)
    return values


def _require_free(folder: Path) -> None:
    if folder == Path.cwd():
        raise OutputError(f"{folder} is the folder this runs in; name one inside it")
    if folder.is_dir() and any(folder.iterdir()):
        raise OutputError(f"{folder} is not empty; choose another output, or delete it")
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file; give a folder for the output")


def _require_fitting(files: ModelFiles, kind: str) -> None:
    """Raises UnsupportedModelError for a model of which there is no graph of this kind."""
    name, model_kind = files.source.name, files.config.kind
    if files.graph is not None:
        raise UnsupportedModelError(
            f"{name} is an ONNX export already; export from the model that it was made of"
        )
    if model_kind == "causal":
        raise UnsupportedModelError(
            f"{name} is a causal model ({files.config.model_type}); only masked models and students are "
            "exported"
        )
    needed = "student" if kind == "single-pass" else "masked"
    if model_kind != needed:
        others = "single-pass" if model_kind == "student" else "masked or pll"
        raise UnsupportedModelError(
            f"{name} is a {model_kind} model; kind {kind} is of a {needed} one (use kind {others})"
        )
