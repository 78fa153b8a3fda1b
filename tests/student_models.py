"""Students of the tiny models: their encoders with a random head, written as a distilled model is."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from tiny_models import MODELS

NO_ENCODER = (
    "cls.",
    "lm_head.",
    "lm_predictions.",
    "predictions.",
    "generator_",
    "vocab_",
    "decoder.",
    "head.",
)
"""How the names of a vocabulary head's tensors begin."""
NOT_READ = (".pooler.", "position_ids", "contact_head")
LAYER = re.compile(r"\.layers?\.(\d+)\.")
NUM_LAYERS = ("num_hidden_layers", "n_layers")


def make_student(
    folder: Path, model: str = "bert", head: str = "token", layers: int | None = None, seed: int = 0
) -> Path:
    """Writes a student of a folder of tests/data/models to `folder`, which need not exist, and returns it.

    layers: keep so many of the first ones. The values of its tokens are around -4, as log-probabilities.
    """
    source = MODELS / model
    shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors*"))
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    tensors = encoder_tensors(source, layers)
    hidden_size = next(config[key] for key in ("hidden_size", "dim", "n_embd") if key in config)
    generator = np.random.default_rng(seed)
    weight = generator.standard_normal((1, hidden_size)) / np.sqrt(hidden_size)
    tensors["student.weight"] = weight.astype(np.float32)
    tensors["student.bias"] = np.array([-4.0], dtype=np.float32)
    save_file(tensors, folder / "model.safetensors")
    write_config(folder, student_config(config, model, head, layers))
    return folder


def student_config(config: dict[str, Any], model: str, head: str, layers: int | None) -> dict[str, Any]:
    """A masked model's config.json made a student's."""
    changed = {key: layers for key in NUM_LAYERS if key in config and layers is not None}
    if "layer_types" in config and layers is not None:
        changed["layer_types"] = config["layer_types"][:layers]
    teacher = {"model": model, "revision": None, "masking": "original"}
    student = {"head": head, "teacher": teacher}
    return {**config, **changed, "architectures": ["MlmfastStudent"], "mlmfast_student": student}


def encoder_tensors(source: Path, layers: int | None = None) -> dict[str, NDArray[Any]]:
    """The tensors of a model's encoder, up to so many layers."""
    tensors = {}
    for file in sorted(source.glob("*.safetensors")):
        tensors.update(load_file(file))
    return {name: values for name, values in tensors.items() if is_kept(name, layers)}


def is_kept(name: str, layers: int | None) -> bool:
    if name.startswith(NO_ENCODER) or any(part in name for part in NOT_READ):
        return False
    layer = LAYER.search(name)
    return layer is None or layers is None or int(layer[1]) < layers


def write_config(folder: Path, config: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


def change_config(folder: Path, **changes: Any) -> Path:
    """Sets fields of a folder's config.json."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_config(folder, {**config, **changes})
    return folder


def change_tensors(folder: Path, add: dict[str, NDArray[Any]] | None = None, drop: str | None = None) -> Path:
    """Adds tensors to a folder's weights, or replaces them, or drops one."""
    tensors = load_file(folder / "model.safetensors")
    tensors.update(add or {})
    if drop is not None:
        del tensors[drop]
    save_file(tensors, folder / "model.safetensors")
    return folder


def share_tensors(folder: Path, model: str, names: list[str]) -> Path:
    """Takes tensors of a folder out of its own file: its index names those of the sibling folder `model`."""
    own = load_file(folder / "model.safetensors")
    for name in names:
        del own[name]
    (folder / "model.safetensors").unlink()
    save_file(own, folder / "own.safetensors")
    files = dict.fromkeys(own, "own.safetensors") | dict.fromkeys(names, f"../{model}/model.safetensors")
    write_index(folder, files)
    return folder


def write_index(folder: Path, files: dict[str, str]) -> None:
    """files: the file of each tensor."""
    index = {"metadata": {}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
