"""The head of the torch engine on a GPU, here on the CPU: by chunks of rows, and run by
scoring_rules/test_triton under Triton's interpreter by the kernels."""

from __future__ import annotations

import functools
import os

import numpy as np
import pytest
import torch
from tiny_models import MODELS, tiny_scorer

import mlmfast
from mlmfast.engines import torch_engine
from mlmfast.engines.base import Outputs
from mlmfast.engines.torch_heads import LinearScoreHead, LogitsHead, head_parts
from mlmfast.engines.torch_load import load_model
from mlmfast.models import head_layout

IMPLS = ("torch", "triton") if os.environ.get("TRITON_INTERPRET") == "1" else ("torch",)
every_impl = pytest.mark.parametrize("impl", IMPLS)
TEXTS = ["The people of the nation shall be governed.", "A", "", "We, the people, never read it."]


@every_impl
@pytest.mark.parametrize("name", ["bert", "esm2", "gpt2"])
@pytest.mark.parametrize(
    "outputs",
    [
        Outputs(),
        Outputs(rank=True, entropy=True, logit=True),
        Outputs(entropy=True, top_k=3),
        Outputs(logits=True, logit=True),
        Outputs(word_start=True),
    ],
    ids=["log_prob", "statistics", "top_k", "logits", "word_start"],
)
def test_the_columns_of_whole_logits(impl: str, name: str, outputs: Outputs) -> None:
    files = tiny_scorer(name).files
    layout = head_layout(files.config)
    assert layout is not None
    transform, weight, bias = head_parts(load_model(files), layout)
    generator = np.random.default_rng(0)
    word_start = generator.integers(0, 2, len(weight)).astype(np.uint8)
    hidden = torch.from_numpy(generator.standard_normal((70, weight.shape[1]), dtype=np.float32))
    offsets = np.concatenate([[0], generator.integers(0, 4, 70).cumsum()])
    ids = generator.integers(0, len(weight), offsets[-1]).astype(np.int32)
    plain = LogitsHead(
        lambda x: torch.nn.functional.linear(transform(x), weight, bias), len(weight), word_start
    )
    wanted = plain(hidden, ids, offsets, outputs)
    with torch.inference_mode():
        found = LinearScoreHead(transform, weight, bias, word_start, impl)(hidden, ids, offsets, outputs)
    for column, values in vars(wanted).items():
        if values is None:
            assert getattr(found, column) is None
        elif values.dtype == np.int32:
            np.testing.assert_array_equal(getattr(found, column), values, column)
        else:
            assert getattr(found, column).dtype == np.float32
            np.testing.assert_allclose(getattr(found, column), values, rtol=0, atol=1e-5, err_msg=column)


@every_impl
def test_no_places(impl: str) -> None:
    head = LinearScoreHead(lambda x: x, torch.ones(11, 4), None, None, impl)
    found = head(torch.zeros(0, 4), np.zeros(0, np.int32), np.zeros(1, np.int64), Outputs(rank=True))
    assert len(found.log_prob) == 0


@every_impl
@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_the_scores_of_texts(impl: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the whole engine, which takes the head apart, checks it and shares places among targets."""
    wanted = tiny_scorer(name).score(TEXTS)
    monkeypatch.setattr(torch_engine, "KernelHead", functools.partial(LinearScoreHead, impl=impl))
    found = mlmfast.load(MODELS / name, engine="torch", device="cpu", workers=1).score(TEXTS)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(
            [token.log_prob for token in one.tokens],
            [token.log_prob for token in other.tokens],
            rtol=0,
            atol=1e-4,
        )
