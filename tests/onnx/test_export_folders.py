"""What an export leaves: the graph's form, its metadata, the tokenizer, large weights, precisions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest
from tiny_models import MODELS, read_lines

import mlmfast
from mlmfast.engines.onnx_folder import KINDS, PRECISIONS
from mlmfast.export import export_model, graphs
from mlmfast.models import Checkpoint
from mlmfast.scorer import open_model

Export = Callable[..., Path]


def nodes_of(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Those of the graph and of the graphs in its nodes."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from nodes_of(attribute.g)


def description_of(folder: Path) -> dict:
    return json.loads((folder / "mlmfast_onnx.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("kind", "precision"),
    [(kind, precision) for kind in KINDS for precision in PRECISIONS],
)
def test_graphs_are_standard_and_say_what_they_are(
    kind: str, precision: str, exported: Export, students: dict[str, Path]
) -> None:
    folder = exported(students["token"] if kind == "single-pass" else "bert", kind, precision)
    model = onnx.load(folder / "model.onnx")
    assert [(opset.domain, opset.version >= 18) for opset in model.opset_import] == [("", True)]
    nodes = list(nodes_of(model.graph))
    assert {node.domain for node in nodes} == {""}
    assert not any(node.doc_string or node.metadata_props for node in nodes)
    assert ("MatMulInteger" in {node.op_type for node in nodes}) == (precision == "int8")
    types = {weight.data_type for weight in model.graph.initializer}
    assert (onnx.TensorProto.FLOAT16 in types) == (precision == "float16")
    axes = [d.dim_param for value in model.graph.input for d in value.type.tensor_type.shape.dim]
    assert all(axes)
    described = description_of(folder)
    stored = {prop.key.removeprefix("mlmfast."): prop.value for prop in model.metadata_props}
    assert {
        k: v if isinstance(v, str) else json.dumps(v, sort_keys=True) for k, v in described.items()
    } == stored
    assert {value.name for value in model.graph.input} == set(described["inputs"])
    assert {value.name for value in model.graph.output} == set(described["outputs"])


def test_the_description_is_complete(exported: Export) -> None:
    described = description_of(exported("bert", "masked"))
    tokenizer = open_model(MODELS / "bert").tokenizer
    assert described["special_tokens"]["mask_id"] == tokenizer.special.mask_id
    assert (described["special_tokens"]["prefix"], described["special_tokens"]["suffix"]) == (1, 1)
    assert described["max_length"] == 64
    assert described["log_base"] == "e"
    assert described["masking"] == "any: the tokens masked in input_ids"
    assert described["sign"] == "log-probabilities: higher is likelier"
    assert "never scored" in described["special_tokens"]["policy"]
    assert described["versions"]["onnx"] == onnx.__version__
    assert described["source"]["weights_sha256"] == Checkpoint.of(MODELS / "bert").checksum()
    assert set(described["agreement"]) == {"real", "random"}
    for found in described["agreement"].values():
        assert 0 < found["mean"] <= found["worst"] <= 1e-4
        assert found["num_values"] > 50


@pytest.mark.parametrize(("precision", "most"), [("float16", 0.05), ("int8", 0.5)])
def test_the_error_of_a_precision_is_found_and_written(precision: str, most: float, exported: Export) -> None:
    folder = exported("bert", "masked", precision)
    found = description_of(folder)["agreement"]["real"]
    assert found["worst"] > 1e-4
    assert 1e-5 < found["mean"] <= most
    texts = read_lines("inaugural.txt")[:5]
    with mlmfast.load(folder, workers=1) as scorer, mlmfast.load(MODELS / "bert", workers=1) as exact:
        assert scorer.engine.describe()["precision"] == precision
        pairs = zip(scorer.score(texts), exact.score(texts), strict=True)
        errors = [
            abs(a.log_prob - b.log_prob) for f, e in pairs for a, b in zip(f.tokens, e.tokens, strict=True)
        ]
    assert 0 < sum(errors) / len(errors) <= most


def test_large_weights_lie_beside_the_graph(
    exported: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "EXTERNAL_DATA_BYTES", 1000)
    texts = read_lines("inaugural.txt")[:2]
    for kind, precision in (("masked", "float32"), ("masked", "int8"), ("pll", "float32")):
        folder = tmp_path / f"{kind}-{precision}"
        export_model(MODELS / "bert", kind=kind, precision=precision, output=folder)
        assert (folder / "model.onnx.data").stat().st_size > (folder / "model.onnx").stat().st_size / 4
        assert {f.name for f in folder.iterdir() if "onnx" in f.name} == {
            "model.onnx",
            "model.onnx.data",
            "mlmfast_onnx.json",
        }
    with (
        mlmfast.load(tmp_path / "masked-float32", workers=1) as beside,
        mlmfast.load(exported("bert", "masked"), workers=1) as within,
    ):
        assert [r.score for r in beside.score(texts)] == [r.score for r in within.score(texts)]
        assert beside.describe()["weights_sha256"] != within.describe()["weights_sha256"]


def test_a_tokenizer_without_a_tokenizer_json_gets_one(exported: Export) -> None:
    assert not (MODELS / "esm2" / "tokenizer.json").exists()
    written, read = open_model(exported("esm2", "masked")).tokenizer, open_model(MODELS / "esm2").tokenizer
    assert (written.special, written.vocabulary, written.protein) == (read.special, read.vocabulary, True)
