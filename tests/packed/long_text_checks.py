"""The packed engine with its Triton kernels on a text of 512 tokens, against Hugging Face in float64.

Run by test_packed_interpreter under the interpreter, and as it stands where there is a GPU.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from reference import forward, load_model
from student_models import change_config
from tiny_models import MODELS, PACKED_BOUNDS

import mlmfast
from mlmfast.engines import Outputs
from mlmfast.types import RowBatch

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from random_model import save_random_model

LENGTH = 512


def long_model(name: str, folder: Path) -> Path:
    """That takes so many tokens: absolute positions, or rotary ones and local windows."""
    if name == "bert":
        return save_random_model(folder, vocab_size=500, num_layers=2, hidden_size=32, num_heads=2)
    shutil.copytree(MODELS / name, folder)
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"model_max_length": LENGTH}))
    return change_config(folder, max_position_embeddings=LENGTH)


@pytest.mark.parametrize(
    ("name", "precision"), [("bert", "float32"), ("bert", "bfloat16"), ("modernbert", "float32")]
)
def test_a_text_of_512_tokens(name: str, precision: str, tmp_path: Path) -> None:
    """One row, masked at its first token, in the middle and at its last; scored there and elsewhere."""
    folder = long_model(name, tmp_path / name)
    with mlmfast.load(folder, engine="packed", precision=precision, workers=1) as scorer:
        assert scorer.describe()["impl"] == "triton"
        assert scorer.engine.max_length == LENGTH
        mask_id = scorer.files.tokenizer.special.mask_id
        ids = np.random.default_rng(0).integers(5, 40, size=LENGTH, dtype=np.int32)
        masks, targets = np.array([0, 255, LENGTH - 1]), np.array([0, 1, 64, 255, 300, LENGTH - 1])
        batch = RowBatch(
            input_ids=ids,
            text_offsets=np.array([0, LENGTH]),
            token_type_ids=None,
            row_text=np.zeros(1, dtype=np.int32),
            mask_positions=masks.astype(np.int32),
            mask_offsets=np.array([0, len(masks)]),
            target_positions=targets.astype(np.int32),
            target_ids=ids[targets],
            target_offsets=np.array([0, len(targets)]),
            mask_token_id=mask_id,
        )
        found = scorer.engine.score(batch, Outputs()).log_prob
    masked = ids.copy()
    masked[masks] = mask_id
    expected = forward(load_model(folder), masked.tolist()).numpy()[targets, ids[targets]]
    assert np.std(expected) > 0.1
    np.testing.assert_allclose(found, expected, rtol=0, atol=PACKED_BOUNDS[precision])
