"""The default precision of the native engine: the fastest that stays exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_models import MODELS

import mlmfast
from mlmfast import _core
from mlmfast.engines.base import Engine, ModelFiles, Outputs
from mlmfast.engines.native_engine import NativeEngine
from mlmfast.engines.self_check import LARGEST_DIFFERENCE, check_batch, fastest_exact
from mlmfast.models.source import EMBEDDED
from mlmfast.types import JsonRecord, RowBatch, TargetOutputs

AVAILABLE = _core.available_isas()
FAST = "bf16x3" if AVAILABLE[-1] == "amx" else "float32"


def kept(files: ModelFiles, *fast: str) -> object:
    """The precision of the engine that the check decides for."""
    engine = fastest_exact(files, lambda precision: NativeEngine(files, precision=precision), fast)
    return engine.describe()["precision"]


@pytest.mark.parametrize("name", [name for name, folder in EMBEDDED.items() if folder.is_dir()])
def test_an_embedded_model_passes_the_check_it_is_spared(name: str) -> None:
    with mlmfast.load(name, engine="native") as scorer:
        assert scorer.engine.describe()["precision"] == FAST
        assert kept(scorer.files, FAST) == FAST


def test_a_model_that_magnifies_rounding_stays_in_float32() -> None:
    with mlmfast.load(MODELS / "bert", engine="native") as scorer:
        assert scorer.engine.describe()["precision"] in ("float32", FAST)
        assert kept(scorer.files, "bfloat16") == "float32"


@pytest.mark.parametrize("isa", [isa for isa in AVAILABLE if isa != "amx"])
def test_without_matrix_units_it_is_float32(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLMFAST_ISA", isa)
    with mlmfast.load() as scorer:
        assert scorer.engine.describe()["precision"] == "float32"


class Shifted:
    """An engine whose log-probabilities are off by a constant."""

    def __init__(self, engine: Engine, precision: str, shift: float) -> None:
        self._engine, self.precision, self._shift = engine, precision, np.float32(shift)

    def score(self, batch: RowBatch, outputs: Outputs) -> TargetOutputs:
        found = self._engine.score(batch, outputs)
        return TargetOutputs(log_prob=found.log_prob + self._shift)

    def describe(self) -> JsonRecord:
        return self._engine.describe()


@pytest.mark.parametrize(
    ("shift", "exact"), [(0.0, True), (4e-5, True), (7e-5, False), (-7e-5, False), (float("nan"), False)]
)
def test_the_bound(shift: float, exact: bool) -> None:
    with mlmfast.load(MODELS / "bert", engine="native", precision="float32") as scorer:

        def load(precision: str) -> Engine:
            return Shifted(  # type: ignore[return-value]
                scorer.engine, precision, {"worse": 1.0, "fast": shift, "float32": 0.0}[precision]
            )

        found = fastest_exact(scorer.files, load, ["worse", "fast"])
        assert isinstance(found, Shifted)
        assert found.precision == ("fast" if exact else "float32")


@pytest.mark.parametrize("name", ["bert", "esm2", "sapiens-vh", "xlm-roberta", "albert"])
def test_the_check_scores_every_token_of_its_texts(name: str) -> None:
    with mlmfast.load(MODELS / name, engine="native", precision="float32") as scorer:
        batch = check_batch(scorer.files)
        assert len(batch.target_ids) >= 50
        targets = zip(
            np.repeat(batch.row_text, np.diff(batch.target_offsets)), batch.target_positions, strict=True
        )
        assert len(set(targets)) == len(batch.target_ids)
        assert np.diff(batch.text_offsets).max() <= scorer.engine.max_length


def test_24_layers(tmp_path: Path) -> None:
    """Rounding grows with depth; a deep random model is judged by what it does, whichever way that goes."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=1000, hidden_size=64, num_hidden_layers=24, num_attention_heads=4, intermediate_size=128
    )
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / file).write_bytes((MODELS / "bert" / file).read_bytes())
    texts = ["The cat sat on the mat.", "A sentence that the check does not hold, of another length."]
    with (
        mlmfast.load(tmp_path, engine="native") as scorer,
        mlmfast.load(tmp_path, engine="torch") as torch_scorer,
    ):
        found, expected = scorer.score(texts), torch_scorer.score(texts)
        worst = max(
            abs(a.log_prob - b.log_prob)
            for one, other in zip(found, expected, strict=True)
            for a, b in zip(one.tokens, other.tokens, strict=True)
            if a.log_prob is not None and b.log_prob is not None
        )
        assert worst < 2 * LARGEST_DIFFERENCE
        assert scorer.engine.describe()["precision"] in ("float32", FAST)
