"""Finds where the host reads what a device computed: on a GPU it would wait there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode

from mlmfast.engines import Outputs
from mlmfast.engines.packed.engine import PackedEngine
from mlmfast.engines.packed.layout import host_layout
from mlmfast.types import RowBatch

READS = {
    "tolist",
    "item",
    "numpy",
    "cpu",
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
    "__len__of_data__",
    "__array__",
    "__contains__",
    "is_nonzero",
    "equal",
    "allclose",
}


class HostReadError(AssertionError):
    pass


class _Functions(TorchFunctionMode):
    """What Python asks of a tensor."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = (resolve_name(function) or "").rpartition(".")[2]
        if name in READS:
            raise HostReadError(f"{name} of a tensor of {list(args[0].shape)}")
        return function(*args, **(kwargs or {}))


class _Operators(TorchDispatchMode):
    """What torch's operators ask."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if asks_for_data(function, args, kwargs):
            raise HostReadError(str(function))
        return function(*args, **kwargs)


def asks_for_data(function: Any, args: Any, kwargs: Any) -> bool:
    """Whether the result's shape, or a number on the host, hangs on what a tensor holds."""
    aten = torch.ops.aten
    if function.overloadpacket in (aten.index, aten.index_put, aten.index_put_):
        # Only a mask has to be counted.
        return any(isinstance(index, Tensor) and not index.dtype.is_signed for index in args[1])
    if function is aten.repeat_interleave.Tensor:
        return kwargs.get("output_size") is None
    return bool({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(function.tags))


@contextmanager
def no_host_reads() -> Iterator[None]:
    """Raises HostReadError there. What Triton's interpreter does in place of a GPU is left out."""
    with pytest.MonkeyPatch.context() as patch:
        _leave_out_kernels(patch)
        with _Functions(), _Operators():
            yield


def _leave_out_kernels(patch: pytest.MonkeyPatch) -> None:
    try:
        from triton.runtime.interpreter import GridExecutor
    except ImportError:
        return
    launch = GridExecutor.__call__

    def launch_apart(self: Any, *args: Any, **kwargs: Any) -> None:
        with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
            launch(self, *args, **kwargs)

    patch.setattr(GridExecutor, "__call__", launch_apart)


def assert_forward_waits_for_nothing(engine: PackedEngine, batch: RowBatch, outputs: Outputs) -> None:
    """From the batch on the device to the columns there: with graphs that is their trunk and the rest."""
    host = host_layout(batch, engine._spec)
    layout = host.on_device(engine._device)
    with torch.inference_mode(), no_host_reads():
        engine._head.columns(engine._encoder.states(layout), layout, host.target_offsets, outputs)
