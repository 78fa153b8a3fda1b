"""Torch modules to ONNX files: opset 20, dynamic axes, operators of the standard only."""

from __future__ import annotations

import contextlib
import inspect
import logging
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch.export import Dim

from mlmfast.engines.base import ModelFiles
from mlmfast.errors import UnsupportedModelError
from mlmfast.export.framing import Framing
from mlmfast.export.modules import GraphModule, masked_module, student_module
from mlmfast.export.pll_graph import pll_graph
from mlmfast.models.checkpoint import GRAPH

OPSET = 20
EXTERNAL_DATA_BYTES = 1 << 30
"""Weights of more bytes lie in a file beside the graph: a protobuf message holds 2 GiB at most."""


def write_graph(files: ModelFiles, kind: str, precision: str, framing: Framing, folder: Path) -> None:
    """Writes the graph of a model, and its weights where they are large, to an existing folder.

    Raises ModelError, UnsupportedModelError.
    """
    module = student_module(files) if kind == "single-pass" else masked_module(files)
    if precision == "float16":
        module.network.half()
    try:
        with _quiet():
            _write(module, folder, quantized=precision == "int8")
    except OSError:
        raise
    except Exception as error:  # the exporter and the quantizer have many of their own
        raise UnsupportedModelError(
            f"{files.source.name}: model type {files.config.model_type!r} cannot be exported "
            f"({type(error).__name__}: {first_line(error)})"
        ) from error
    model = onnx.load(folder / GRAPH, load_external_data=False)
    _forget_origin(model)
    if kind == "pll":
        mask_id = files.tokenizer.special.mask_id
        assert mask_id is not None  # open_model refuses a masked model without
        model = pll_graph(model, mask_id=mask_id, prefix=framing.prefix, suffix=framing.suffix)
    model.graph.name = f"mlmfast-{kind}"
    onnx.save(model, folder / GRAPH)


def _write(module: GraphModule, folder: Path, *, quantized: bool) -> None:
    program = exported_program(module)
    weights = program.model.graph.initializers.values()
    num_bytes = sum(weight.const_value.nbytes for weight in weights)
    beside = num_bytes > EXTERNAL_DATA_BYTES
    if not quantized:
        program.save(folder / GRAPH, external_data=beside)
        return
    with tempfile.TemporaryDirectory(dir=folder) as plain:
        program.save(Path(plain) / GRAPH, external_data=beside)
        quantize_dynamic(
            Path(plain) / GRAPH,
            folder / GRAPH,
            op_types_to_quantize=["MatMul"],  # and Gemm, which the quantizer makes one
            per_channel=True,
            weight_type=QuantType.QInt8,
            use_external_data_format=beside,
        )


def exported_program(module: GraphModule) -> Any:
    """The program of a module for any number of rows, tokens and targets."""
    ids = torch.tensor([[1, 2, 3, 4, 5], [5, 4, 3, 2, 1], [2, 3, 4, 5, 1]])
    mask = torch.ones_like(ids)
    mask[1, 3:] = 0
    targets = torch.tensor([0, 1, 2, 2])
    examples = {"input_ids": ids, "attention_mask": mask}
    names = tuple(inspect.signature(module.forward).parameters)
    row_axes, target_axis = {0: Dim("rows"), 1: Dim("length")}, {0: Dim("targets")}
    return torch.onnx.export(
        module,
        # Clones: inputs that are one tensor here would be one in the graph.
        tuple(examples.get(name, targets).clone() for name in names),
        dynamo=True,
        verbose=False,
        opset_version=OPSET,
        input_names=names,
        output_names=module.outputs,
        dynamic_shapes=tuple(row_axes if name in examples else target_axis for name in names),
    )


def _forget_origin(model: onnx.ModelProto) -> None:
    """Takes out what the exporter says of the source code each node came from."""
    del model.graph.value_info[:]
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No progress notes of the exporter and the quantizer; what goes wrong raises."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
