"""Layers kept: which, whose weights, and that each family's student scores alike wherever it is run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from distillation_runs import MODELS, SETTINGS, distilled, teacher
from student_models import make_student

from mlmfast.errors import SettingsError
from mlmfast.models import Checkpoint
from mlmfast.scorer import open_model
from mlmfast.training.distillation.layers import kept_layers
from mlmfast.training.distillation.settings import StudentSettings
from mlmfast.training.distillation.student import Student

FAMILIES = ("roberta", "distilbert", "albert", "electra", "mpnet", "deberta-v2", "modernbert", "esm2")


@pytest.mark.parametrize(
    ("num_layers", "layers", "kept"),
    [(6, None, range(6)), (6, 3, (0, 2, 5)), (6, 1, (0,)), (12, 4, (0, 4, 7, 11)), (1, 1, (0,))],
)
def test_layers_spread_evenly(num_layers, layers, kept):
    assert kept_layers(num_layers, StudentSettings(layers=layers)) == tuple(kept)


def test_named_layers():
    assert kept_layers(6, StudentSettings(kept_layers=(0, 1, 4))) == (0, 1, 4)
    for wrong in ((), (1, 0), (0, 0), (0, 6), (-1,)):
        with pytest.raises(SettingsError, match=r"expected ascending numbers from 0 to 5"):
            kept_layers(6, StudentSettings(kept_layers=wrong))
    with pytest.raises(SettingsError, match="layers is 7, but the teacher has 6"):
        kept_layers(6, StudentSettings(layers=7))
    with pytest.raises(SettingsError, match="leave one out"):
        StudentSettings(layers=1, kept_layers=(0,))


def test_layers_that_share_weights_are_only_counted():
    files = teacher("albert").files
    assert Student(files, StudentSettings(layers=2), precision="float32").config["num_hidden_layers"] == 2
    with pytest.raises(SettingsError, match="give --layers in place of --kept-layers"):
        Student(files, StudentSettings(kept_layers=(0, 2)), precision="float32")


def test_a_student_begins_with_the_teachers_weights():
    files = teacher("distilbert").files
    student = Student(files, StudentSettings(kept_layers=(0, 2)), precision="float32")
    state = student.tensors()
    weights = files.checkpoint.tensors
    for mine, its in ((0, 0), (1, 2)):
        name = "distilbert.transformer.layer.{}.ffn.lin1.weight"
        entry = weights[name.format(its)]
        found = state[name.format(mine)].numpy()
        np.testing.assert_array_equal(found, entry.raw().view("<f4").reshape(entry.shape))
    assert "distilbert.transformer.layer.2.ffn.lin1.weight" not in state


@pytest.mark.parametrize("name", FAMILIES)
def test_every_familys_student_is_read_as_it_was_trained(tmp_path, name):
    """The run itself checks it; here that its tensors have the teacher's names."""
    settings = replace(SETTINGS, steps=2, evaluate_every=None, student=StudentSettings(layers=1))
    summary = distilled(tmp_path / "student", settings, name=name, held_out=None)
    assert summary["tokens_per_second"]["student"] > 0
    names = set(Checkpoint.of(tmp_path / "student").tensors)
    own = {"student.weight", "student.bias"}
    assert names - own <= set(teacher(name).files.checkpoint.tensors)
    assert own < names


@pytest.mark.parametrize("kind", ["student", "causal"])
def test_only_a_masked_model_teaches(tmp_path, kind):
    model = make_student(tmp_path / "student") if kind == "student" else MODELS / "gpt2"
    with pytest.raises(SettingsError, match=f"is a {kind} model; the teacher has to be a masked one"):
        Student(open_model(model), StudentSettings(), precision="float32")
