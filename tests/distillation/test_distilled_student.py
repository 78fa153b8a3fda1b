"""What a run leaves: a student's folder that scores as it was trained, its report, its errors."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from distillation_runs import HELD_OUT, LINES, MODELS, SETTINGS, distilled, teacher
from safetensors.numpy import load_file

import mlmfast
from mlmfast.errors import SettingsError, TrainingError
from mlmfast.rescoring.lists import Hypothesis, NBestList
from mlmfast.training import ScheduleSettings
from mlmfast.training.distillation.nbest import NBestLists
from mlmfast.training.distillation.pairs import Pairs
from mlmfast.training.distillation.report import ScoredTexts, Trials
from mlmfast.training.distillation.settings import LossSettings, StudentSettings
from mlmfast.training.distillation.writing import round_weights
from mlmfast.training.metrics_file import read_metrics

LEARNT = replace(SETTINGS, steps=60, evaluate_every=30, schedule=ScheduleSettings(3e-3, "constant"))


@pytest.fixture(scope="module", params=["token", "cls"])
def student(request, tmp_path_factory) -> tuple[Path, dict, str]:
    folder = tmp_path_factory.mktemp("student") / "out"
    loss = LossSettings(0.2, huber=3.0)
    settings = replace(LEARNT, student=StudentSettings(request.param), loss=loss)
    return folder, distilled(folder, settings, train=LINES[:120], held_out=LINES[150:200]), request.param


def test_it_learns(student):
    _, summary, head = student
    first, *_, last = [r["held_out"] for r in read_metrics(student[0] / "metrics.jsonl") if "held_out" in r]
    assert last["spearman"] > (0.9 if head == "token" else 0.5)
    if head == "token":
        assert last["spearman_per_token"] > 0.4
        assert last["rank_correlation"] > first["rank_correlation"]
    assert summary["held_out"]["all"]["num_texts"] == 92
    assert summary["held_out"]["clean"]["num_texts"] == summary["held_out"]["corrupted"]["num_texts"] == 46


def test_the_folder_is_a_model(student):
    folder, _, head = student
    config = json.loads((folder / "config.json").read_text("utf-8"))
    assert config["architectures"] == ["MlmfastStudent"]
    assert config["mlmfast_student"] == {
        "head": head,
        "teacher": {
            "model": str(MODELS / "bert"),
            "revision": None,
            "weights_sha256": teacher().files.checkpoint.checksum(),
            "masking": "original",
        },
    }
    tensors = load_file(folder / "model.safetensors")
    assert tensors["student.weight"].shape == (1, 32)
    assert tensors["student.weight"].dtype == tensors["student.bias"].dtype == np.float32
    assert tensors["bert.encoder.layer.0.attention.self.query.weight"].dtype == np.float16
    assert not [name for name in tensors if name.startswith("cls.") or "pooler" in name]
    with mlmfast.load(folder, workers=1) as scorer:
        found = scorer.score(HELD_OUT)
    expected = teacher().score(HELD_OUT)
    assert [f.num_tokens for f in found] == [e.num_tokens for e in expected]
    assert {f.masking for f in found} == {"student"}
    error = [(f.score - e.score) / e.num_tokens for f, e in zip(found, expected, strict=True)]
    assert np.abs(error).mean() < (1.0 if head == "token" else 5.0)


def test_its_head_is_the_dot_product(student):
    """Against a plain float64 forward of transformers' own encoder."""
    import torch
    from transformers import AutoConfig, BertModel

    folder, _, head = student
    encoder = BertModel(AutoConfig.from_pretrained(folder), add_pooling_layer=False).double().eval()
    tensors = {
        name: torch.from_numpy(v).double() for name, v in load_file(folder / "model.safetensors").items()
    }
    weight, bias = tensors.pop("student.weight"), tensors.pop("student.bias")
    encoder.load_state_dict({name.removeprefix("bert."): v for name, v in tensors.items()})
    with mlmfast.load(folder, precision="float32", workers=1) as scorer:
        for text, found in zip(HELD_OUT, scorer.score(HELD_OUT), strict=True):
            ids = torch.from_numpy(teacher().files.tokenizer.encode([text]).input_ids.astype(np.int64))
            with torch.no_grad():
                values = (encoder(ids[None])[0][0] @ weight[0] + bias).numpy()
            expected = values[1:-1].sum() if head == "token" else values[0]
            assert found.score == pytest.approx(expected, abs=1e-4 * max(found.num_tokens, 1))


def test_patience_ends_a_run(tmp_path):
    settings = replace(SETTINGS, steps=40, patience=2)
    settings = replace(settings, schedule=replace(settings.schedule, learning_rate=0.3))
    summary = distilled(tmp_path / "out", settings)
    assert summary["steps"] < 40
    assert summary["steps"] == summary["best_step"] + 4
    assert not (tmp_path / "out" / "checkpoint.pt").exists()


def test_frozen_embeddings_are_the_teachers_and_can_be_shared(tmp_path):
    shutil.copytree(MODELS / "bert", tmp_path / "bert")
    settings = replace(
        SETTINGS, student=StudentSettings(layers=1, freeze_embeddings=True, share_embeddings=True)
    )
    with mlmfast.load(tmp_path / "bert", precision="float32", workers=1) as scorer:
        distilled(tmp_path / "out", settings, scorer=scorer)
        with pytest.raises(SettingsError, match="is not a folder beside"):
            distilled(tmp_path / "elsewhere" / "out", settings, scorer=scorer)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text("utf-8"))["weight_map"]
    own = load_file(tmp_path / "out" / "student.safetensors")
    shared = set(index) - set(own)
    assert "bert.embeddings.word_embeddings.weight" in shared
    assert {index[name] for name in shared} == {"../bert/model.safetensors"}
    assert {index[name] for name in own} == {"student.safetensors"}
    assert not (tmp_path / "elsewhere").exists()
    with mlmfast.load(tmp_path / "out", workers=1) as scorer:
        assert scorer.score(["we the people"])[0].num_tokens == 3


def test_float32_weights(tmp_path):
    settings = replace(SETTINGS, student=StudentSettings(weights="float32", freeze_embeddings=True))
    distilled(tmp_path / "out", settings)
    mine, its = (load_file(f / "model.safetensors") for f in (tmp_path / "out", MODELS / "bert"))
    name = "bert.embeddings.word_embeddings.weight"
    np.testing.assert_array_equal(mine[name], its[name])
    other = "bert.encoder.layer.0.attention.self.query.weight"
    assert mine[other].dtype == np.float32
    assert (mine[other] != its[other]).any()


def test_weights_too_large_for_float16():
    from mlmfast.training.distillation.student import Student

    student = Student(teacher().files, StudentSettings(), precision="float32")
    student.encoder.embeddings.LayerNorm.weight.data[3] = 1e6
    with pytest.raises(TrainingError, match="too large for float16; write float32 ones with --weights"):
        round_weights(student, {})


def test_a_loss_that_is_not_finite_stops_with_the_step(tmp_path):
    settings = replace(SETTINGS, schedule=replace(SETTINGS.schedule, learning_rate=1e30, warmup_steps=0))
    with pytest.raises(TrainingError, match=r"step \d: .*not finite|step \d: the loss is (nan|inf)"):
        distilled(tmp_path / "out", settings)


def test_evaluations_need_held_out_texts(tmp_path):
    with pytest.raises(SettingsError, match="give --held-out FILE"):
        distilled(tmp_path / "out", held_out=None)


def nbest(id: str, *texts: str, reference: str | None = None) -> NBestList:
    hypotheses = [Hypothesis(n, text, {"first_pass": -float(n)}) for n, text in enumerate(texts, 1)]
    return NBestList(id, tuple(hypotheses), () if reference is None else (reference,))


def test_lists_and_pairs_are_reported(tmp_path):
    lists = NBestLists.of(
        [
            nbest("u-1", "we  the people", "we the a people", reference="we the people"),
            nbest("u-2", "", "of the united", "people of we", reference="of the united"),
            nbest("u-3"),
        ]
    )
    pairs = Pairs(("we the people", "a"), ("people the we", "the " * 100))
    files = teacher().files
    summary = distilled(
        tmp_path / "out", trials=Trials.of(lists, pairs, files.tokenizer, files.config.max_length)
    )
    good, bad = (teacher().score([text])[0].score for text in ("we the people", "people the we"))
    with mlmfast.load(tmp_path / "out", precision="float32", workers=1) as student:
        kept = student.score(["we the people"])[0].score > student.score(["people the we"])[0].score
    assert summary["pairs"] == {
        "pairs": 2,
        "pairs_scored": 1,
        "teacher_accuracy": float(good > bad),
        "student_accuracy": float(kept),
        "decisions_kept": float((good > bad) == kept),
    }
    found = summary["lists"]
    assert (found["lists"], found["hypotheses"]) == (3, 5)
    assert found["kendall"] in (-1.0, 0.0, 1.0)
    assert found["wer"]["first_pass"] == 50.0
    assert 0 <= found["wer"]["student"] <= 100


def test_texts_that_cannot_be_scored_have_no_score():
    files = teacher().files
    texts = ScoredTexts.of(["a", "", "we the", "a", "the " * 100], files.tokenizer, files.config.max_length)
    assert texts.corpus.texts == ("a", "we the")
    assert texts.place.tolist() == [0, -1, 1, 0, -1]
    assert texts.num_tokens.tolist() == [1, 0, 2, 1, 0]
    spread = texts.spread(np.array([-1.0, -2.0]))
    assert [None if math.isnan(v) else v for v in spread] == [-1.0, None, -2.0, -1.0, None]
