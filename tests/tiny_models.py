"""The test data, and scorers of the tiny models loaded once."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path

from safetensors.numpy import load_file, save_file

import mlmfast

DATA = Path(__file__).parent / "data"
MODELS = DATA / "models"
TEXT = DATA / "text"
NATIVE = (
    "bert",
    "roberta",
    "distilbert",
    "albert",
    "electra",
    "xlm-roberta",
    "camembert",
    "modernbert",
    "esm2",
    "sapiens-vh",
    "bert-legacy-names",
    "bert-sharded",
)
"""Models that the native engine runs, and the packed one."""
PACKED_ATTENTION = ("bert", "roberta", "electra", "modernbert", "esm2", "sapiens-vh")
"""Those whose attention is over packed operands once their heads have 32 features."""
NATIVE_BOUNDS = {"float32": 1e-4, "bf16x3": 1e-3, "bf16x4": 1e-3, "bfloat16": 0.5, "int8": 4.0}
"""Nats per token that the native engine may be off on these models: their random weights magnify rounding far
more than trained ones."""
PACKED_BOUNDS = {"float32": 1e-4, "bfloat16": 0.3, "float16": 0.05}
"""The same of the packed engine: measured 1.4e-5, 0.19, 0.035."""


@cache
def tiny_scorer(name: str, precision: str = "float32", engine: str = "torch") -> mlmfast.Scorer:
    """The scorer of a folder of tests/data/models, one worker."""
    return mlmfast.load(MODELS / name, precision=precision, engine=engine, workers=1)


def read_lines(name: str) -> list[str]:
    """The lines of a file of tests/data/text."""
    return (TEXT / name).read_text(encoding="utf-8").removesuffix("\n").split("\n")


def with_heads_of_32(name: str, folder: Path) -> Path:
    """A copy in a new folder of a model of PACKED_ATTENTION, its heads of 32 features."""
    copy = shutil.copytree(MODELS / name, folder / name)
    config = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    config["num_attention_heads"] = config["hidden_size"] // 32
    (copy / "config.json").write_text(json.dumps(config), encoding="utf-8")
    # ESM-2's files hold the rotary frequencies, which follow from the head size.
    weights = load_file(copy / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if not name.endswith("inv_freq")}
    save_file(kept, copy / "model.safetensors", metadata={"format": "pt"})
    return copy
