"""What is refused, by name, and that a failed export leaves nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from student_models import change_config
from tiny_models import MODELS

import mlmfast
from mlmfast.errors import OutputError, SettingsError, UnsupportedModelError
from mlmfast.export import agreement, export_model, graphs, run
from mlmfast.generation import GenerationSettings, generate, starts
from mlmfast.scorer import open_model

Export = Callable[..., Path]
STUDENT = {"architectures": ["MlmfastStudent"], "mlmfast_student": {"head": "token"}}


@pytest.mark.parametrize(
    ("model", "kind", "message"),
    [
        ("gpt2", "pll", r"gpt2 is a causal model \(gpt2\)"),
        ("bert", "single-pass", "bert is a masked model; kind single-pass is of a student one"),
        ("bert-no-head", "masked", "no complete masked language-model head"),
        ("bert-pickle-only", "masked", "only pickled weights"),
    ],
)
def test_models_without_such_a_graph(model: str, kind: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(mlmfast.ModelError, match=message):
        export_model(MODELS / model, kind=kind, output=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_students_have_single_pass_graphs_alone(students: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="use kind single-pass"):
        export_model(students["token"], kind="pll", output=tmp_path / "out")


def test_a_family_with_an_unknown_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlmfast.models.heads import HEADS

    monkeypatch.delitem(HEADS, "bert")
    with pytest.raises(UnsupportedModelError, match="the head of model type 'bert' is not known here"):
        export_model(MODELS / "bert", kind="masked", output=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_the_exporter_cannot_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(module: object) -> None:
        raise RuntimeError("no such operator\nand more")

    monkeypatch.setattr(graphs, "exported_program", failing)
    with pytest.raises(UnsupportedModelError, match=r"'bert' cannot be exported \(RuntimeError: no such op"):
        export_model(MODELS / "bert", kind="masked", output=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kind", "precision"), [("masks", "float32"), ("pll", "bfloat16")])
def test_unknown_names(kind: str, precision: str, tmp_path: Path) -> None:
    with pytest.raises(mlmfast.SettingsError, match="expected one of"):
        export_model(MODELS / "bert", kind=kind, precision=precision, output=tmp_path / "out")


def test_outputs_that_are_taken(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(OutputError, match="is a file"):
        export_model(MODELS / "bert", kind="pll", output=tmp_path / "file")
    with pytest.raises(OutputError, match="is not empty"):
        export_model(MODELS / "bert", kind="pll", output=tmp_path)
    assert (tmp_path / "file").read_text() == "kept"


def test_the_current_folder_is_no_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match="is the folder this runs in"):
        export_model(MODELS / "bert", kind="pll", output=".")


def test_a_link_to_an_empty_folder_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_fill", lambda folder, *_: (folder / "model.onnx").touch())
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    export_model(MODELS / "bert", kind="masked", output=tmp_path / "link")
    assert (tmp_path / "there" / "model.onnx").is_file()
    assert (tmp_path / "link").is_symlink()


def test_a_graph_that_disagrees_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = agreement.expected_values
    monkeypatch.setattr(agreement, "expected_values", lambda *given: [v + 1e-3 for v in expected(*given)])
    with pytest.raises(mlmfast.ModelError, match=r"float32 graph is off by 0.001.*Nothing was written"):
        export_model(MODELS / "bert", kind="masked", output=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_values_that_are_not_numbers_disagree() -> None:
    import numpy as np

    sample = agreement.Sample("real", None, None)  # type: ignore[arg-type]
    one, nan = np.ones(3, np.float32), np.array([1, np.nan, 1], np.float32)
    assert agreement.require_agreement("m", "int8", [sample], [one], [one])["real"].worst == 0
    with pytest.raises(mlmfast.ModelError, match="off by nan"):
        agreement.require_agreement("m", "int8", [sample], [one], [nan])
    with pytest.raises(mlmfast.ModelError, match=r"\(2,\) values where \(3,\)"):
        agreement.require_agreement("m", "int8", [sample], [one], [one[:2]])


def test_an_export_is_not_exported(exported: Export, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="is an ONNX export already"):
        export_model(exported("bert", "masked"), kind="pll", output=tmp_path / "out")


def test_an_export_has_no_weights_to_train_from(exported: Export) -> None:
    from mlmfast.training.distillation.settings import StudentSettings
    from mlmfast.training.distillation.student import Student
    from mlmfast.training.model import TrainedModel

    files = open_model(exported("bert", "masked"))
    with pytest.raises(UnsupportedModelError, match="is an ONNX export, which only scores"):
        Student(files, StudentSettings(), precision="float32")
    with pytest.raises(UnsupportedModelError, match="is an ONNX export, which only scores"):
        TrainedModel(files)


def test_engines_and_folders_that_do_not_fit(exported: Export, students: dict[str, Path]) -> None:
    folder = exported("bert", "masked")
    with pytest.raises(UnsupportedModelError, match="mlmfast export --kind masked --model"):
        mlmfast.load(MODELS / "bert", engine="onnx")
    with pytest.raises(UnsupportedModelError, match="mlmfast export --kind single-pass --model"):
        mlmfast.load(students["token"], engine="onnx")
    with pytest.raises(UnsupportedModelError, match="causal models are not exported"):
        mlmfast.load(MODELS / "gpt2", engine="onnx")
    for engine in ("native", "torch"):
        with pytest.raises(mlmfast.SettingsError, match=f"the {engine} engine cannot run"):
            mlmfast.load(folder, engine=engine)
    with pytest.raises(mlmfast.SettingsError, match="was exported in float32"):
        mlmfast.load(folder, precision="int8")
    assert mlmfast.load(folder, precision="float32").engine.describe()["precision"] == "float32"


@pytest.mark.parametrize("option", ["rank", "entropy", "top_k"])
def test_more_than_log_probabilities(option: str, exported: Export) -> None:
    with (
        mlmfast.load(exported("bert", "masked"), workers=1) as scorer,
        pytest.raises(mlmfast.SettingsError, match="gives log-probabilities alone"),
    ):
        scorer.score_iter(["a"], **{option: 1})


def test_generation(exported: Export) -> None:
    with mlmfast.load(exported("bert", "masked"), workers=1) as scorer:
        for made in (lambda: starts(scorer, [""]), lambda: generate(scorer, [], GenerationSettings())):
            with pytest.raises(SettingsError, match="generation needs the logits"):
                made()


def test_energies_of_logits(exported: Export) -> None:
    with mlmfast.load(exported("bert", "masked"), workers=1) as scorer:
        with pytest.raises(mlmfast.SettingsError, match="raw energies need the model it was exported from"):
            scorer.energy(["people"], "raw")
        [energy] = scorer.energy(["people"], "norm")
        assert energy == -scorer.score(["people"])[0].score  # type: ignore[operator]


@pytest.mark.parametrize(
    ("device", "message"),
    [("tpu", "runs on 'cpu', 'cuda' or 'tensorrt'"), ("cuda:1", "pip install onnxruntime-gpu")],
)
def test_devices_that_cannot_be_used(
    device: str, message: str, exported: Export, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(mlmfast.SettingsError, match=message):
        mlmfast.load(exported("bert", "masked"), device=device)


def test_float32_on_a_gpu_is_not_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    from mlmfast.engines.onnx_engine import _providers

    names = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: names)
    providers, index = _providers("tensorrt:1")
    assert index == 1
    assert providers == (
        ("TensorrtExecutionProvider", {"device_id": 1}),
        ("CUDAExecutionProvider", {"device_id": 1, "use_tf32": 0}),
        ("CPUExecutionProvider", {}),
    )


def damaged(folder: Path, target: Path, **changes: object) -> Path:
    """A copy of an export whose description says something else."""
    shutil.copytree(folder, target)
    path = target / "mlmfast_onnx.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return target


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 2}, "format version 2"),
        ({"kind": "other"}, "kind is 'other'"),
        ({"precision": "int4"}, "precision is 'int4'"),
        ({"precision": "int8"}, "not of one export"),
    ],
)
def test_descriptions_that_do_not_fit_their_graph(
    changes: dict[str, object], message: str, exported: Export, tmp_path: Path
) -> None:
    with pytest.raises(mlmfast.ModelError, match=message):
        mlmfast.load(damaged(exported("bert", "masked"), tmp_path / "export", **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (STUDENT, "kind 'masked'.*'student'"),
        ({"is_decoder": True}, "kind 'masked'.*'causal'"),
        ({"max_position_embeddings": 32}, "max_length 64.*32"),
    ],
)
def test_another_models_configuration_beside_a_graph(
    changes: dict[str, object], message: str, exported: Export, tmp_path: Path
) -> None:
    folder = change_config(damaged(exported("bert", "masked"), tmp_path / "export"), **changes)
    with pytest.raises(mlmfast.ModelError, match=message):
        mlmfast.load(folder)


def test_a_student_of_another_head_beside_a_graph(
    exported: Export, students: dict[str, Path], tmp_path: Path
) -> None:
    folder = damaged(exported(students["token"], "single-pass"), tmp_path / "export")
    change_config(folder, mlmfast_student={"head": "cls"})
    with pytest.raises(mlmfast.ModelError, match=r"head 'token'.*'cls'"):
        mlmfast.load(folder)


def test_files_that_are_damaged(exported: Export, tmp_path: Path) -> None:
    folder = damaged(exported("bert", "masked"), tmp_path / "export")
    graph = folder / "model.onnx"
    graph.write_bytes(graph.read_bytes()[:1000])
    with pytest.raises(mlmfast.ModelError, match="cannot load this graph"):
        mlmfast.load(folder)
    graph.unlink()
    with pytest.raises(mlmfast.ModelError, match=r"no model\.onnx; export the model again"):
        mlmfast.load(folder)
    (folder / "mlmfast_onnx.json").write_text("{")
    with pytest.raises(mlmfast.ModelError, match="not a description of an exported graph"):
        mlmfast.load(folder)


@pytest.mark.parametrize(
    ("package", "extra"),
    [("torch", "torch"), ("onnx", "onnx"), ("onnxscript", "onnx"), ("onnxruntime", "onnx")],
)
def test_missing_packages_name_their_extra(package: str, extra: str, tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules[{package!r}] = None
import mlmfast
from mlmfast.export import export_model
try:
    export_model(kind="pll", output={str(tmp_path / "out")!r})
except mlmfast.MissingExtraError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert f"needs the package {package!r}" in said
    assert f"pip install 'mlmfast[{extra}]'" in said
