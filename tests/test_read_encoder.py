"""A model's folder as the core hands it to engines that compute elsewhere: the spec and the tensors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from student_models import make_student
from tiny_models import MODELS, NATIVE

from mlmfast import _core


def stored(name: str) -> dict[str, np.ndarray]:
    return {k: v for file in (MODELS / name).glob("*.safetensors") for k, v in load_file(file).items()}


def holds(tensor: np.ndarray, array: np.ndarray) -> bool:
    """Whether the tensor is the array, or several arrays of its size stacked, of which it is one."""
    size = len(array)
    parts = [tensor[start : start + size] for start in range(0, len(tensor), size)]
    return any(np.array_equal(part, array) for part in parts)


def only(encoder: _core.EncoderFile, role: str) -> np.ndarray:
    """The array of a role that is not of a layer."""
    (entry,) = encoder["tensors"][role]
    assert entry is not None
    return entry[0]


@pytest.mark.parametrize("name", NATIVE)
def test_every_tensor_is_one_of_the_checkpoint(name: str) -> None:
    encoder = _core.read_encoder(str(MODELS / name))
    tensors = stored(name)
    num_layers = encoder["spec"]["num_layers"]
    for role, layers in encoder["tensors"].items():
        assert len(layers) in (1, num_layers)
        for entry in layers:
            if entry is None:
                assert role == "attention_norm_weight"
                continue
            array, dtype = entry
            assert dtype == "float32" == array.dtype
            assert any(holds(tensor, array) for tensor in tensors.values()), role


def test_the_spec_of_bert() -> None:
    spec = _core.read_encoder(str(MODELS / "bert"))["spec"]
    config = json.loads((MODELS / "bert/config.json").read_text())
    assert spec == {
        "model_type": "bert",
        "vocab_size": config["vocab_size"],
        "embedding_size": config["hidden_size"],
        "hidden_size": config["hidden_size"],
        "num_layers": config["num_hidden_layers"],
        "num_heads": config["num_attention_heads"],
        "intermediate_size": config["intermediate_size"],
        "type_vocab_size": config["type_vocab_size"],
        "max_positions": config["max_position_embeddings"],
        "max_length": config["max_position_embeddings"],
        "position": "absolute",
        "position_offset": 0,
        "position_skip_id": -1,
        "norm_placement": "post",
        "norm_eps": config["layer_norm_eps"],
        "norm_bias": True,
        "embedding_norm": True,
        "first_attention_norm": True,
        "final_norm": False,
        "activation": "gelu",
        "gated": False,
        "attention_bias": True,
        "mlp_bias": True,
        "attention": [{"is_local": False, "half_window": 0, "rope_theta": 0.0}] * 2,
        "shared_layers": False,
        "embedding_projection": False,
        "token_dropout": False,
        "mask_token_id": -1,
        "head": "vocabulary",
        "head_activation": "gelu",
        "head_dense_bias": True,
        "decoder_bias": True,
        "tied_decoder": True,
    }


def test_what_families_differ_in() -> None:
    modern, albert, esm, sapiens = (
        _core.read_encoder(str(MODELS / name)) for name in ("modernbert", "albert", "esm2", "sapiens-vh")
    )
    spec = modern["spec"]
    assert (spec["position"], spec["norm_placement"], spec["gated"]) == ("rotary", "pre", True)
    assert [layer["is_local"] for layer in spec["attention"]] == [False, True, True, False]
    assert spec["attention"][1] == {"is_local": True, "half_window": 8, "rope_theta": 10000.0}
    norms = modern["tensors"]["attention_norm_weight"]
    assert norms[0] is None
    assert all(entry is not None for entry in norms[1:])
    assert "query_bias" not in modern["tensors"]
    assert "position_embeddings" not in modern["tensors"]

    assert albert["spec"]["shared_layers"]
    assert albert["spec"]["activation"] == "gelu_tanh"
    assert {len(layers) for layers in albert["tensors"].values()} == {1}
    assert only(albert, "embedding_projection_weight").shape == (48, 24)

    assert esm["spec"]["token_dropout"]
    assert esm["spec"]["mask_token_id"] == 32
    assert only(esm, "inverse_frequencies").shape == (8,)

    assert only(modern, "decoder_weight") is only(modern, "word_embeddings")
    assert only(sapiens, "decoder_weight") is not only(sapiens, "word_embeddings")


@pytest.mark.parametrize(("head", "kind"), [("token", "token_student"), ("cls", "cls_student")])
def test_a_student(tmp_path: Path, head: str, kind: str) -> None:
    encoder = _core.read_encoder(str(make_student(tmp_path / "student", head=head)))
    size = encoder["spec"]["hidden_size"]
    assert encoder["spec"]["head"] == kind
    assert only(encoder, "student_weight").shape == (1, size)
    assert only(encoder, "student_bias").shape == (1,)
    assert not {"decoder_weight", "decoder_bias", "head_dense_weight"} & encoder["tensors"].keys()


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_is_handed_out_as_it_is_stored(tmp_path: Path, name: str) -> None:
    import torch
    from safetensors.torch import save_file as save_torch_file

    folder = tmp_path / "half"
    folder.mkdir()
    (folder / "config.json").write_bytes((MODELS / "bert/config.json").read_bytes())
    tensors = {k: torch.from_numpy(v).to(getattr(torch, name)) for k, v in stored("bert").items()}
    save_torch_file(tensors, folder / "model.safetensors")
    ((array, dtype),) = _core.read_encoder(str(folder))["tensors"]["word_embeddings"]
    assert dtype == name
    assert array.dtype == (np.uint16 if name == "bfloat16" else np.float16)
    expected = tensors["bert.embeddings.word_embeddings.weight"]
    np.testing.assert_array_equal(array.view(np.int16), expected.view(torch.int16).numpy())


def test_a_copy_outlives_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((MODELS / "bert/config.json").read_bytes())
    file = tmp_path / "model.safetensors"
    save_file(stored("bert"), file)
    array = only(_core.read_encoder(str(tmp_path)), "word_embeddings")
    with file.open("r+b") as stream:
        stream.write(b"\xff" * file.stat().st_size)
    np.testing.assert_array_equal(array, stored("bert")["bert.embeddings.word_embeddings.weight"])


def test_refusals_are_those_of_the_native_engine() -> None:
    with pytest.raises(_core.UnsupportedModelError, match="model_type"):
        _core.read_encoder(str(MODELS / "gpt2"))
    with pytest.raises(_core.ModelError, match=r"cls\.predictions\.transform\.dense\.weight"):
        _core.read_encoder(str(MODELS / "bert-no-head"))
    with pytest.raises(_core.ModelError, match="no weights"):
        _core.read_encoder(str(MODELS / "bert-no-weights"))
