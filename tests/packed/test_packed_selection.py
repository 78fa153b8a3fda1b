"""When the packed engine is chosen, and what it refuses."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny_models import MODELS

import mlmfast
from mlmfast.engines import base
from mlmfast.engines.packed import engine as packed_engine
from mlmfast.engines.torch_device import describe_device
from mlmfast.errors import MlmfastError, ModelError, SettingsError, UnsupportedModelError
from mlmfast.kernels import attention_triton, encoder_ops
from mlmfast.kernels.triton.launch import why_triton_fails
from mlmfast.loading import open_model

CPU = torch.device("cpu")


@pytest.fixture
def as_if_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is found, and the packed engine computes on a CPU what it is asked to compute on a GPU."""
    monkeypatch.setattr(base, "NVIDIA_DRIVER", Path("/"))
    monkeypatch.setattr(packed_engine, "choose_device", lambda device: CPU)


@pytest.mark.usefixtures("as_if_on_a_gpu")
@pytest.mark.parametrize(
    ("name", "engine"), [("bert", "packed"), ("modernbert", "packed"), ("mpnet", "torch"), ("gpt2", "torch")]
)
def test_auto_takes_it_for_the_models_it_can_run(
    name: str, engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), mlmfast.load(MODELS / name) as scorer:
        assert scorer.describe()["engine"] == engine
        assert scorer.describe()["precision"] == "float32"
    assert ("the packed engine cannot run this model here" in caplog.text) == (engine == "torch")


@pytest.mark.usefixtures("as_if_on_a_gpu")
def test_auto_leaves_the_cpu_to_the_native_engine() -> None:
    with mlmfast.load(MODELS / "bert", device="cpu") as scorer:
        assert scorer.describe()["engine"] == "native"


@pytest.mark.usefixtures("as_if_on_a_gpu")
@pytest.mark.parametrize("name", ["bert-no-head", "bert-two-biases", "bert-partial"])
def test_auto_does_not_get_round_an_untrustworthy_checkpoint(name: str) -> None:
    with pytest.raises(ModelError):
        mlmfast.load(MODELS / name)


@pytest.mark.usefixtures("as_if_on_a_gpu")
def test_pickles_are_left_to_torch() -> None:
    with mlmfast.load(MODELS / "bert-pickle-only", allow_pickle=True) as scorer:
        assert scorer.describe()["engine"] == "torch"
    with pytest.raises(UnsupportedModelError, match="not pickles"):
        mlmfast.load(MODELS / "bert-pickle-only", allow_pickle=True, engine="packed")


def test_a_driver_without_a_gpu_for_torch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    monkeypatch.setattr(base, "NVIDIA_DRIVER", Path("/"))
    with caplog.at_level(logging.INFO), mlmfast.load(MODELS / "bert") as scorer:
        assert scorer.describe()["engine"] == "torch"
    assert "device 'cuda' cannot be used here" in caplog.text


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"precision": "int8"}, "the packed engine has float32, bfloat16, float16"),
        ({"precision": "bf16x3"}, "the packed engine has float32, bfloat16, float16"),
        ({"device": "meta"}, "for CUDA devices; use engine='torch'"),
        ({"device": "nonsense"}, "device 'nonsense' cannot be used here"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, str], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        mlmfast.load(MODELS / "bert", engine="packed", **options)


def test_float16_is_its_own() -> None:
    for engine in ("native", "torch"):
        with pytest.raises(SettingsError, match="float16"):
            mlmfast.load(MODELS / "bert", engine=engine, precision="float16")


@pytest.mark.parametrize("name", ["mpnet", "deberta-v2", "gpt2"])
def test_models_that_a_spec_cannot_say(name: str) -> None:
    with pytest.raises(UnsupportedModelError):
        mlmfast.load(MODELS / name, engine="packed")


@pytest.mark.parametrize("name", ["bert-no-head", "bert-no-weights", "bert-softcap", "electra-discriminator"])
def test_checkpoints_not_to_be_trusted(name: str) -> None:
    with pytest.raises(MlmfastError):
        mlmfast.load(MODELS / name, engine="packed")


@pytest.mark.parametrize(
    ("capability", "reason"), [((7, 5), "compute capability 8.0 or later"), ((8, 0), None), ((9, 0), None)]
)
def test_gpus_that_the_kernels_run_on(
    capability: tuple[int, int], reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(encoder_ops, "why_triton_fails", lambda: None)
    found = encoder_ops.why_no_kernels(torch.device("cuda"))
    assert (found is None) if reason is None else reason in str(found)


def test_a_gpu_that_triton_cannot_launch_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where there is no C compiler, which triton calls before its first launch."""
    driver = pytest.importorskip("triton.runtime").driver
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(encoder_ops, "why_triton_fails", why_triton_fails.__wrapped__)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)

    def no_compiler(self: object) -> None:
        raise RuntimeError("Failed to find C compiler.")

    monkeypatch.setattr(type(driver), "active", property(no_compiler))
    found = encoder_ops.why_no_kernels(torch.device("cuda"))
    assert found == "the packed engine needs triton, and triton cannot launch (Failed to find C compiler.)"


@pytest.mark.parametrize(("name", "value"), [("fp32_precision", "tf32"), ("allow_tf32", True)])
def test_tf32_is_off_unless_a_program_asks_torch_for_it(name: str, value: object) -> None:
    """By either of torch's names; then a result file says so."""
    gpu, matmul = torch.device("cuda:0"), torch.backends.cuda.matmul
    assert describe_device(gpu) == {"device": "cuda:0"}
    before = matmul.fp32_precision
    try:
        setattr(matmul, name, value)
        assert describe_device(gpu) == {"device": "cuda:0", "tf32": True}
        assert describe_device(CPU) == {"device": "cpu"}
    finally:
        matmul.fp32_precision = before


@pytest.mark.parametrize("asked", [False, True])
def test_tf32_before_torch_2_9(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda, "matmul", SimpleNamespace(allow_tf32=asked))
    engine = packed_engine.PackedEngine(open_model(MODELS / "bert"))
    monkeypatch.setattr(engine, "_device", torch.device("cuda:0"))
    assert ("tf32" in engine.describe()) == asked


@pytest.mark.parametrize(("device", "chosen"), [("cuda:1", ["cuda:1"]), ("cpu", [])])
def test_threads_choose_their_gpu(device: str, chosen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    engine = packed_engine.PackedEngine(open_model(MODELS / "bert"))
    monkeypatch.setattr(engine, "_device", torch.device(device))
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: found.append(str(device)))
    engine.prepare_thread()
    assert found == chosen


@pytest.mark.usefixtures("as_if_on_a_gpu")
def test_auto_leaves_heads_too_wide_for_the_kernel_to_torch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(packed_engine, "choose_encoder_impl", lambda device: "triton")
    monkeypatch.setattr(attention_triton, "GREATEST_WIDTH", 8)
    with caplog.at_level(logging.INFO), mlmfast.load(MODELS / "bert") as scorer:
        assert scorer.describe()["engine"] == "torch"
    assert "the attention kernel takes heads of at most 8 values, not 16; use engine='torch'" in caplog.text


def test_it_needs_no_transformers() -> None:
    code = (
        "import sys; sys.modules['transformers'] = None\n"
        "import mlmfast\n"
        "scorer = mlmfast.load(engine='packed')\n"
        "print(scorer.score(['The cat sat on the mat.'])[0].score)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(run.stdout) == pytest.approx(-18.555, abs=1e-2)
