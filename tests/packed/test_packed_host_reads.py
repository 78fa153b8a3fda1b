"""The packed forward never asks the device for a number: the host is free to launch ahead, and to capture."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from host_reads import HostReadError, assert_forward_waits_for_nothing, no_host_reads
from test_packed_engine import batch_for
from tiny_models import NATIVE, tiny_scorer
from torch import Tensor

from mlmfast.engines import Outputs
from mlmfast.engines.packed.engine import PackedEngine

ASKING: dict[str, Callable[[Tensor], object]] = {
    "tolist": lambda x: x.tolist(),
    "item": lambda x: x[0].item(),
    "int": lambda x: int(x[0]),
    "bool": lambda x: x[0] > 1 or None,
    "slice": lambda x: x[: x[1]],
    "index of a list": lambda x: [1, 2, 3][x[1]],
    "numpy": lambda x: x.numpy(),
    "cpu": lambda x: x.cpu(),
    "mask": lambda x: x[x > 2],
    "masked store": lambda x: x.index_put_((x > 1,), torch.tensor(0)),
    "nonzero": lambda x: x.nonzero(),
    "unique": lambda x: x.unique(),
    "repeat": lambda x: torch.repeat_interleave(x),
    "in": lambda x: 5 in x,
}


@pytest.mark.parametrize("ask", ASKING.values(), ids=ASKING)
def test_questions_are_found(ask: Callable[[Tensor], object]) -> None:
    ask(torch.arange(5))
    with pytest.raises(HostReadError), no_host_reads():
        ask(torch.arange(5))


def test_the_rest_is_let_through() -> None:
    x = torch.arange(5)
    with no_host_reads():
        found = x[torch.tensor([1, 4])].repeat_interleave(x[:2] + 1, output_size=3)
        found.masked_fill_(found == 1, 7)
        assert len(found) == 3
    assert found.tolist() == [7, 4, 4]


@pytest.mark.parametrize(
    "outputs", [Outputs(rank=True, entropy=True, logit=True), Outputs(top_k=3)], ids=["rank", "top_k"]
)
@pytest.mark.parametrize("name", NATIVE[:9])
def test_the_forward_waits_for_nothing(name: str, outputs: Outputs) -> None:
    """With the plain twins; test_packed_interpreter does the same with the kernels."""
    engine = tiny_scorer(name, "float32", "packed").engine
    assert isinstance(engine, PackedEngine)
    assert_forward_waits_for_nothing(engine, batch_for(name), outputs)
