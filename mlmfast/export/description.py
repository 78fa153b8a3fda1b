"""What an exported folder says of itself: mlmfast_onnx.json, and the same in the graph's metadata."""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import onnx

from mlmfast.engines.base import ModelFiles
from mlmfast.engines.onnx_folder import FORMAT_VERSION, GraphDescription
from mlmfast.export.agreement import Agreement
from mlmfast.export.framing import Framing
from mlmfast.export.graphs import OPSET
from mlmfast.io.json_text import to_json
from mlmfast.models.checkpoint import DESCRIPTION, GRAPH
from mlmfast.types import JsonRecord

ROWS = {
    "input_ids": "int64 [rows, length], special tokens included",
    "attention_mask": "int64 [rows, length], 1 for a token, 0 for padding after it",
}
CONTENTS: dict[str, JsonRecord] = {
    "masked": {
        "masking": "any: the tokens masked in input_ids",
        "inputs": {
            **ROWS,
            "target_rows": "int64 [targets], a row each",
            "target_positions": "int64 [targets], a place in that row each",
            "target_ids": "int64 [targets], the token that stood there",
        },
        "outputs": {"log_probs": "float32 [targets]"},
    },
    "pll": {
        "masking": "original: each token alone, inside the graph",
        "inputs": {"input_ids": "int64 [length], one sentence, special tokens included, nothing masked"},
        "outputs": {"log_probs": "float32 [length - prefix - suffix], the tokens between the special ones"},
    },
    "token": {
        "masking": "student: none, predicts the terms of a pseudo-log-likelihood",
        "inputs": ROWS,
        "outputs": {
            "token_scores": "float32 [rows, length], 0 at special tokens and padding",
            "score": "float32 [rows], the sum of a row",
        },
    },
    "cls": {
        "masking": "student: none, predicts a pseudo-log-likelihood",
        "inputs": ROWS,
        "outputs": {"score": "float32 [rows]"},
    },
}
"""By kind; of single-pass graphs by their head."""


def describe(files: ModelFiles, kind: str, precision: str, framing: Framing) -> JsonRecord:
    """Everything but the agreement, which is found by running the graph."""
    special = files.tokenizer.special
    head = files.config.student_head
    packages = ("mlmfast", "torch", "transformers", "onnx", "onnxscript", "onnxruntime")
    return {
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "precision": precision,
        "head": head,
        **CONTENTS[head or kind],
        "log_base": "e",
        "sign": "log-probabilities: higher is likelier",
        "special_tokens": {
            "policy": "in the input, around the text; never scored, never counted",
            "prefix": framing.prefix,
            "suffix": framing.suffix,
            "mask_id": special.mask_id,
            "pad_id": special.pad_id,
            "ids": sorted(special.all_ids),
        },
        "max_length": files.config.max_length,
        "opset": OPSET,
        "source": {
            "model": files.source.name,
            "revision": files.source.revision,
            "model_type": files.config.model_type,
            "weights_sha256": files.checkpoint.checksum(),
        },
        "versions": {name: version(name) for name in packages},
    }


def with_agreement(values: JsonRecord, agreement: dict[str, Agreement]) -> JsonRecord:
    """agreement: by origin of the texts, with the float32 model in torch."""
    return {**values, "agreement": {origin: asdict(found) for origin, found in agreement.items()}}


def write_description(folder: Path, values: JsonRecord) -> None:
    """To the folder and into the graph, whose weights stay where they are. Raises OSError."""
    (folder / DESCRIPTION).write_text(to_json(values, indented=True) + "\n", encoding="utf-8")
    model = onnx.load(folder / GRAPH, load_external_data=False)
    description = GraphDescription(values["kind"], values["precision"], values)
    onnx.helper.set_model_props(model, description.metadata())
    onnx.save(model, folder / GRAPH)
