"""What a student refuses: options that do not fit it, folders that are not whole or not one thing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from student_models import (
    change_config,
    change_tensors,
    encoder_tensors,
    make_student,
    share_tensors,
    write_index,
)
from tiny_models import MODELS, tiny_scorer

import mlmfast
from mlmfast.engines.base import Outputs
from mlmfast.errors import ModelError, SettingsError, UnsupportedModelError

TEXT = "the people of the nation"
MASKINGS = ("original", "word_l2r", "whole_word", "stride:2", "none", "causal")
ENGINES = ("native", "torch")
ONE = np.ones(1, dtype=np.float32)


@pytest.fixture(params=["token", "cls"])
def student(request: pytest.FixtureRequest, tmp_path: Path) -> mlmfast.Scorer:
    return mlmfast.load(make_student(tmp_path / "student", head=request.param), workers=1)


@pytest.mark.parametrize("masking", MASKINGS)
def test_a_student_takes_its_own_masking_alone(student: mlmfast.Scorer, masking: str) -> None:
    needed = "causal" if masking == "causal" else "masked"
    with pytest.raises(
        SettingsError, match=rf"is a student model; .* needs a {needed} one \(use 'student'\)"
    ):
        student.score_iter([TEXT], masking)


@pytest.mark.parametrize(
    ("name", "kind", "own"), [("bert", "masked", "original"), ("gpt2", "causal", "causal")]
)
def test_other_models_do_not_take_it(name: str, kind: str, own: str) -> None:
    with pytest.raises(SettingsError, match=rf"is a {kind} model; .* needs a student one \(use '{own}'\)"):
        tiny_scorer(name).score_iter([TEXT], "student")


def test_it_is_the_default_of_a_student(student: mlmfast.Scorer) -> None:
    assert student.default_masking == "student"
    assert student.score([TEXT]) == student.score([TEXT], "student")
    assert tiny_scorer("bert").default_masking == "original"


def test_its_score_is_no_pll(student: mlmfast.Scorer) -> None:
    result = student.score([TEXT])[0]
    assert result.score is not None
    with pytest.raises(SettingsError, match="'student' does not give a pseudo-log-likelihood"):
        _ = result.pll


@pytest.mark.parametrize("options", [{"rank": True}, {"entropy": True}, {"top_k": 2}])
def test_it_has_no_distribution(student: mlmfast.Scorer, options: dict[str, bool | int]) -> None:
    with pytest.raises(
        SettingsError, match="distribution over the vocabulary, which a student does not give"
    ):
        student.score_iter([TEXT], **options)


def test_it_has_no_value_for_special_tokens(student: mlmfast.Scorer) -> None:
    with pytest.raises(SettingsError, match="score_eos"):
        student.score_iter([TEXT], score_eos=True)


def test_windows_of_a_cls_student_do_not_add_up(student: mlmfast.Scorer) -> None:
    if student.files.config.student_head == "token":
        assert student.score([" ".join([TEXT] * 40)], overlong="window")[0].num_tokens == 200
        return
    with pytest.raises(SettingsError, match="overlong='window': a student with head cls"):
        student.score_iter([TEXT], overlong="window")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "outputs",
    [
        Outputs(rank=True),
        Outputs(entropy=True),
        Outputs(top_k=1),
        Outputs(logit=True),
        Outputs(logits=True),
    ],
)
def test_engines_give_its_values_alone(engine: str, outputs: Outputs, tmp_path: Path) -> None:
    with mlmfast.load(make_student(tmp_path / "student"), engine=engine, workers=1) as scorer:
        window = scorer.prepare([TEXT])
        batch, _ = window.batch(window.batches[0])
        with pytest.raises(SettingsError, match="a student gives"):
            scorer.engine.score(batch, outputs)


def test_the_core_refuses_masks_and_other_places(tmp_path: Path) -> None:
    ids, offsets, zero = np.array([2, 7, 9, 3], np.int32), np.array([0, 4]), np.zeros(1, np.int32)
    none, no_offsets, one_each = np.zeros(0, np.int32), np.zeros(2, np.int64), np.array([0, 1])
    target = np.array([1], np.int32)
    for head, message in (("token", "unmasked"), ("cls", "position 0")):
        with mlmfast.load(make_student(tmp_path / head, head=head), engine="native", workers=1) as scorer:
            masks = (target, one_each) if head == "token" else (none, no_offsets)
            model = scorer.engine._model  # type: ignore[attr-defined]
            with pytest.raises(ValueError, match=message):
                model.score(ids, offsets, None, zero, *masks, target, target, one_each, 0)
            with pytest.raises(ValueError, match="a student gives log_prob alone"):
                model.score(
                    ids, offsets, None, zero, none, no_offsets, zero, target, one_each, 0, logits=True
                )


def config_without_head(folder: Path) -> Path:
    return change_config(folder, mlmfast_student={"teacher": {"model": "bert"}})


def pickled(folder: Path) -> Path:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    return folder


def cut_short(folder: Path) -> Path:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    return folder


def stored_twice(folder: Path) -> Path:
    """A tensor also without the prefix, with other values."""
    return change_tensors(folder, {"encoder.layer.1.output.dense.bias": np.ones(32, np.float32)})


FAULTS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no head": (config_without_head, r"mlmfast_student\.head is None; expected token or cls"),
    "unknown head": (
        lambda folder: change_config(folder, mlmfast_student={"head": "sentence"}),
        r"mlmfast_student\.head is 'sentence'",
    ),
    "no object": (lambda folder: change_config(folder, mlmfast_student="token"), r"head is None"),
    "decoder": (lambda folder: change_config(folder, is_decoder=True), "is_decoder is set"),
    "no weight": (lambda folder: change_tensors(folder, drop="student.weight"), r"no student\.weight"),
    "no bias": (lambda folder: change_tensors(folder, drop="student.bias"), r"no student\.bias"),
    "flat weight": (
        lambda folder: change_tensors(folder, {"student.weight": np.ones(32, np.float32)}),
        r"student\.weight is F32 \[32\]; expected \[1, 32\]",
    ),
    "wide bias": (
        lambda folder: change_tensors(folder, {"student.bias": np.ones(2, np.float32)}),
        r"student\.bias is F32 \[2\]; expected \[1\]",
    ),
    "whole numbers": (
        lambda folder: change_tensors(folder, {"student.bias": np.ones(1, np.int32)}),
        r"student\.bias is I32",
    ),
    "two heads": (
        lambda folder: change_tensors(folder, {"cls.predictions.bias": np.ones(320, np.float32)}),
        r"also has a vocabulary head \(cls\.predictions\.bias\)",
    ),
    "no layer": (
        lambda folder: change_tensors(folder, drop="bert.encoder.layer.1.output.dense.bias"),
        r"encoder\.layer\.1\.output\.dense\.bias",
    ),
    "surplus layer": (lambda folder: change_config(folder, num_hidden_layers=1), r"encoder\.layer\.1\."),
    "surplus": (
        lambda folder: change_tensors(folder, {"bert.encoder.extra": ONE}),
        r"encoder\.extra",
    ),
    "surplus of the head": (
        lambda folder: change_tensors(folder, {"student.scale": ONE}),
        r"student\.scale",
    ),
    "other shape": (
        lambda folder: change_tensors(folder, {"bert.embeddings.LayerNorm.bias": np.ones(31, np.float32)}),
        r"embeddings\.LayerNorm\.bias",
    ),
    "other type": (
        lambda folder: change_tensors(folder, {"bert.embeddings.LayerNorm.bias": np.ones(32, np.int32)}),
        r"embeddings\.LayerNorm\.bias is I32",
    ),
    "stored twice": (stored_twice, r"stores one tensor twice, as .*encoder\.layer\.1\.output\.dense\.bias"),
    "stored twice, once under an old name": (
        lambda folder: change_tensors(folder, {"bert.embeddings.LayerNorm.beta": np.ones(32, np.float32)}),
        r"stores one tensor twice, as .*LayerNorm",
    ),
    "pickled": (pickled, "only pickled weights"),
    "cut short": (cut_short, "not a whole safetensors file"),
    "soft cap": (lambda folder: change_config(folder, final_logit_softcapping=30.0), "not carried out"),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_tensor_twice(engine: str, tmp_path: Path) -> None:
    name = "bert.encoder.layer.1.output.dense.bias"
    values = encoder_tensors(MODELS / "bert")[name]
    folder = make_student(tmp_path / "student")
    with mlmfast.load(folder, engine=engine, workers=1) as once:
        expected = once.score([TEXT])[0].score
    change_tensors(folder, {name.removeprefix("bert."): values})
    with mlmfast.load(folder, engine=engine, workers=1) as twice:
        assert twice.score([TEXT])[0].score == expected


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fault", FAULTS)
def test_folders_that_are_no_student(fault: str, engine: str, tmp_path: Path) -> None:
    spoil, message = FAULTS[fault]
    folder = spoil(make_student(tmp_path / "student"))
    with pytest.raises(ModelError, match=message):
        mlmfast.load(folder, engine=engine, workers=1)


def test_a_pickle_that_is_allowed_is_still_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="a student's weights are pickled"):
        mlmfast.load(pickled(make_student(tmp_path / "student")), allow_pickle=True)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_causal_family_has_no_students(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not see the whole text; expected an encoder"):
        mlmfast.load(make_student(tmp_path / "student", name))


def test_a_student_of_a_family_that_the_native_engine_does_not_run(tmp_path: Path) -> None:
    folder = make_student(tmp_path / "student", "mpnet")
    with pytest.raises(UnsupportedModelError, match="mpnet"):
        mlmfast.load(folder, engine="native")
    with mlmfast.load(folder, workers=1) as scorer:
        assert scorer.engine.describe()["engine"] == "torch"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "shard",
    ["../x.safetensors", "../a/b/x.safetensors", "../../a/x.safetensors", "/x.safetensors", "a/x.safetensors",
     "..", ".././x.safetensors", "", "./x.safetensors", "../a/.."],
)  # fmt: skip
def test_an_index_names_files_beside_it_or_in_a_sibling_folder(
    shard: str, engine: str, tmp_path: Path
) -> None:
    folder = make_student(tmp_path / "student")
    (folder / "model.safetensors").rename(folder / "own.safetensors")
    write_index(folder, {"student.weight": "own.safetensors", "student.bias": shard})
    with pytest.raises(ModelError, match=r"tensor student\.bias is in .*\.\./FOLDER/FILE"):
        mlmfast.load(folder, engine=engine)
    from mlmfast import _core

    with pytest.raises(_core.ModelError, match=r"student\.bias is in .*\.\./FOLDER/FILE"):
        _core.Model(str(folder), "float32")


def with_teacher(folder: Path) -> list[str]:
    """A teacher's folder beside, and the names of the tensors that are shared with it."""
    (folder.parent / "teacher").mkdir()
    weights = (MODELS / "bert" / "model.safetensors").read_bytes()
    (folder.parent / "teacher" / "model.safetensors").write_bytes(weights)
    return [name for name in encoder_tensors(MODELS / "bert") if "embeddings" in name]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_sibling_is_not_there(engine: str, tmp_path: Path) -> None:
    names = with_teacher(tmp_path / "student")
    folder = share_tensors(make_student(tmp_path / "student"), "teacher", names)
    (tmp_path / "teacher" / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"names files that are not there: \.\./teacher/model\.safetensors"):
        mlmfast.load(folder, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_sibling_lacks_a_tensor(engine: str, tmp_path: Path) -> None:
    names = with_teacher(tmp_path / "student")
    folder = share_tensors(make_student(tmp_path / "student"), "teacher", [*names, "student.bias"])
    with pytest.raises(ModelError, match=r"model\.safetensors: has no tensor student\.bias"):
        mlmfast.load(folder, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_tensor_of_its_own_that_the_sibling_is_said_to_have(engine: str, tmp_path: Path) -> None:
    names = with_teacher(tmp_path / "student")
    folder = share_tensors(make_student(tmp_path / "student"), "teacher", names)
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    twice = "bert.encoder.layer.0.output.dense.bias"
    write_index(folder, index | {twice: "../teacher/model.safetensors"})
    with pytest.raises(ModelError, match=rf"tensor {twice} is in another file of the model, too"):
        mlmfast.load(folder, engine=engine)
