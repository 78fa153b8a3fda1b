"""Exported graphs through ONNX Runtime, on a CPU or a GPU."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from mlmfast.engines.base import ModelFiles, Outputs
from mlmfast.engines.onnx_folder import GraphDescription
from mlmfast.errors import ModelError, SettingsError, UnsupportedModelError
from mlmfast.models.checkpoint import GRAPH
from mlmfast.scheduling.batches import expand, pad
from mlmfast.types import Int64Array, JsonRecord, RowBatch, TargetOutputs

DEVICE = re.compile(r"(cpu)|(cuda|tensorrt)(?::(\d+))?")
PROVIDERS: dict[str, tuple[str, ...]] = {
    "cpu": (),
    "cuda": ("CUDAExecutionProvider",),
    "tensorrt": ("TensorrtExecutionProvider", "CUDAExecutionProvider"),
}
"""Execution providers by device, the preferred one first; the CPU's comes after them."""
OPTIONS = {"CUDAExecutionProvider": {"use_tf32": 0}}
"""Without them float32 products would be rounded to TF32."""
ERRORS = 3
"""ONNX Runtime's severity level: it warns of every fallback of shape nodes to the CPU."""

Providers = tuple[tuple[str, dict[str, int]], ...]
CPU: Providers = (("CPUExecutionProvider", {}),)


class OnnxEngine:
    """See engines.base.Engine. Runs `masked` exports, and `single-pass` ones of students."""

    def __init__(self, files: ModelFiles, *, device: str | None = None) -> None:
        """device: `cpu` (by default), `cuda` or `tensorrt`, `cuda:1`, ...

        Raises UnsupportedModelError for a model this engine cannot score with, ModelError for a damaged
        one, SettingsError for a device that ONNX Runtime cannot use here.
        """
        graph = files.graph
        if graph is None:
            raise UnsupportedModelError(
                f"{files.source.name} is not an ONNX export, which engine 'onnx' runs; "
                + _how_to_export(files)
            )
        if graph.kind == "pll":
            raise UnsupportedModelError(
                f"{files.source.name} is a pll export, which other runtimes score one sentence a call with; "
                "mlmfast scores with kind masked, which batches rows and takes every masking"
            )
        self._graph: GraphDescription = graph
        self._head = files.config.student_head
        self._pad_id = files.tokenizer.special.pad_id or 0
        self._device = device or "cpu"
        on_cpu = self._device == "cpu"
        providers, index = _providers(self._device)
        self._memory = ("cpu" if on_cpu else "cuda", index)
        self._session = open_session(files.source.folder / GRAPH, providers)
        if providers[0][0] not in self._session.get_providers():
            raise SettingsError(
                f"device {device!r}: ONNX Runtime could not start {providers[0][0]}, as its message says; "
                "device 'cpu' runs without"
            )
        _check_metadata(files.source.name, self._session, graph)
        self.max_length = files.config.max_length
        self.max_batch_tokens = 2048 if on_cpu else 65536
        self.max_workers = None if on_cpu else 1

    def prepare_thread(self) -> None:
        """See engines.base.Engine. Nothing to do: a session computes in the thread that calls it."""

    def score(self, batch: RowBatch, outputs: Outputs) -> TargetOutputs:
        """See engines.base.Engine. Raises SettingsError for more than log-probabilities."""
        if outputs != Outputs():
            raise SettingsError(f"an exported graph gives log-probabilities alone, not {outputs}")
        found = self.run(batch)[0]
        if self._graph.kind == "masked":
            return TargetOutputs(found)
        rows = _row_of_target(batch)
        return TargetOutputs(found[rows] if self._head == "cls" else found[rows, batch.target_positions])

    def run(self, batch: RowBatch) -> list[NDArray[np.float32]]:
        """All outputs of the graph for a batch, in the graph's order."""
        expanded = expand(batch)
        lengths = np.diff(expanded.cu_seqlens)
        inputs = {
            "input_ids": pad(expanded.input_ids, expanded.cu_seqlens, expanded.max_seqlen, self._pad_id),
            "attention_mask": (np.arange(expanded.max_seqlen) < lengths[:, None]).astype(np.int64),
        }
        if self._graph.kind == "masked":
            inputs["target_rows"] = _row_of_target(batch)
            inputs["target_positions"] = batch.target_positions.astype(np.int64)
            inputs["target_ids"] = batch.target_ids.astype(np.int64)
        # Inputs are copied to the device once, and the outputs back.
        binding = self._session.io_binding()
        for name, values in inputs.items():
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(values, *self._memory))
        for output in self._session.get_outputs():
            binding.bind_output(output.name, *self._memory)
        self._session.run_with_iobinding(binding)
        found: list[NDArray[np.float32]] = binding.copy_outputs_to_cpu()
        return found

    def describe(self) -> JsonRecord:
        """See engines.base.Engine."""
        return {
            "engine": "onnx",
            "precision": self._graph.precision,
            "device": self._device,
            "export": {name: self._graph.values.get(name) for name in ("kind", "source", "agreement")},
            "versions": {"onnxruntime": onnxruntime.__version__},
        }


def _how_to_export(files: ModelFiles) -> str:
    if files.config.kind == "causal":
        return "causal models are not exported, other engines run them"
    kind = "single-pass" if files.config.kind == "student" else "masked"
    return f"make one: mlmfast export --kind {kind} --model {files.source.name} --output DIR"


def open_session(graph: Path, providers: Providers = CPU) -> Any:
    """An ONNX Runtime session that computes in the calling thread. Raises ModelError."""
    options = onnxruntime.SessionOptions()
    # One worker a core, each with batches of its own: no barriers between threads inside one.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = ERRORS
    try:
        return onnxruntime.InferenceSession(str(graph), options, providers=list(providers))
    except Exception as error:  # the runtime has a dozen classes of its own, derived from Exception
        raise ModelError(
            f"{graph}: ONNX Runtime {onnxruntime.__version__} cannot load this graph "
            f"({str(error).strip().splitlines()[0]})"
        ) from error


def _providers(device: str) -> tuple[Providers, int]:
    """A device's providers, and its index. Raises SettingsError."""
    match = DEVICE.fullmatch(device)
    if match is None:
        raise SettingsError(
            f"device {device!r}: the onnx engine runs on 'cpu', 'cuda' or 'tensorrt' ('cuda:1' is the "
            "second GPU)"
        )
    kind, index = match[1] or match[2], int(match[3] or 0)
    missing = [name for name in PROVIDERS[kind] if name not in onnxruntime.get_available_providers()]
    if missing:
        raise SettingsError(
            f"device {device!r} needs {missing[0]}, which this ONNX Runtime does not have; replace its "
            "package: pip uninstall onnxruntime; pip install onnxruntime-gpu"
        )
    on_gpu = ((name, {"device_id": index} | OPTIONS.get(name, {})) for name in PROVIDERS[kind])
    return (*on_gpu, *CPU), index


def _check_metadata(name: str, session: Any, graph: GraphDescription) -> None:
    """The graph and the description beside it must be of one export. Raises ModelError."""
    stored = session.get_modelmeta().custom_metadata_map
    for key, value in graph.metadata().items():
        if stored.get(key) != value:
            raise ModelError(
                f"{name}: the graph says {key} = {stored.get(key)!r}, its description {value!r}; they are "
                "not of one export, export again"
            )


def _row_of_target(batch: RowBatch) -> Int64Array:
    """int64[t]."""
    return np.repeat(np.arange(batch.num_rows), np.diff(batch.target_offsets))
