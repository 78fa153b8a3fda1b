"""Whole runs on a tiny model."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace

import pytest
import torch
import transformers
from training_runs import (
    DATA,
    HELD_OUT,
    TRAIN,
    Silent,
    evaluations,
    rows_of,
    steps,
    tiny_files,
    tuned,
    weights,
)

import mlmfast
from mlmfast.errors import InputError, OutputError, SettingsError
from mlmfast.functional import ScoringRule
from mlmfast.training import MaskingSettings, ScheduleSettings, TrainingSettings
from mlmfast.training.run import finetune

FAST = ScheduleSettings(2e-3, "cosine", 2)
SHORT = TrainingSettings(steps=4, batch_size=6, schedule=FAST)
ONE_STEP = TrainingSettings(steps=1, batch_size=6)


@pytest.fixture(scope="module")
def improved(tmp_path_factory):
    """The folder of a run long enough to learn something, and its metrics."""
    output = tmp_path_factory.mktemp("improved") / "model"
    settings = TrainingSettings(steps=80, batch_size=16, evaluate_every=40, schedule=FAST)
    return output, tuned(output, settings)


def test_the_held_out_loss_improves(improved):
    _, metrics = improved
    first, middle, last = evaluations(metrics)
    assert first["num_targets"] == last["num_targets"] > 100
    assert last["log_loss"] < middle["log_loss"] < first["log_loss"] - 2
    assert last["brier"] < first["brier"]
    assert last["masked_pppl"] == pytest.approx(math.exp(last["log_loss"]))


def test_every_step_has_a_line(improved):
    _, metrics = improved
    assert [r["step"] for r in metrics] == [0, *range(1, 41), 40, *range(41, 81), 80]
    assert all(0.05 < s["num_targets"] / (16 * 30) < 0.3 for s in steps(metrics))
    assert max(s["learning_rate"] for s in steps(metrics)) == 2e-3


def test_the_result_scores_and_is_better_by_single_masks_too(improved):
    output, _ = improved
    texts = HELD_OUT[:20]
    with mlmfast.load(output, workers=1) as scorer, mlmfast.load(DATA / "models" / "bert") as before:
        assert scorer.pppl(texts) < 0.1 * before.pppl(texts)


def test_the_result_loads_with_transformers(improved):
    output, _ = improved
    model, report = transformers.AutoModelForMaskedLM.from_pretrained(output, output_loading_info=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(output)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    ids = tokenizer(HELD_OUT[0])["input_ids"]
    assert ids == rows_of(HELD_OUT[:1]).input_ids.tolist()
    assert model(input_ids=torch.tensor([ids])).logits.isfinite().all()
    assert {f.name for f in output.iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "training.meta.json",
    }


def test_the_meta_says_how_the_model_was_made(improved):
    output, metrics = improved
    meta = json.loads((output / "training.meta.json").read_text("utf-8"))
    assert meta["settings"]["texts"]["sha256"] == rows_of(TRAIN).sha256()
    assert meta["settings"]["rule"]["name"] == "log"
    assert meta["progress"]["complete"]
    assert meta["progress"]["records"] == len(metrics)
    assert meta["summary"]["held_out_before"] == evaluations(metrics)[0]
    assert meta["summary"]["held_out_after"] == evaluations(metrics)[-1]


def test_other_families_are_tuned_and_score_again(tmp_path):
    for name in ("albert", "modernbert", "camembert"):
        metrics = tuned(tmp_path / name, replace(SHORT, steps=12), name=name)
        assert evaluations(metrics)[-1]["log_loss"] < evaluations(metrics)[0]["log_loss"], name
        with mlmfast.load(tmp_path / name, workers=1) as scorer:
            assert scorer.pppl(HELD_OUT[:3]) is not None


def test_two_runs_are_the_same_bit_for_bit_and_another_seed_is_not(tmp_path):
    runs = [tuned(tmp_path / n, replace(SHORT, seed=s)) for n, s in (("a", 0), ("b", 0), ("c", 1))]
    assert runs[0] == runs[1]
    assert steps(runs[0]) != steps(runs[2])
    # What is held out is masked alike whatever the seed.
    assert evaluations(runs[0])[0] == evaluations(runs[2])[0]


def test_the_callers_random_numbers_go_on_undisturbed(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    tuned(tmp_path / "a", ONE_STEP)
    assert torch.equal(torch.rand(3), expected)


def test_accumulated_gradients_are_those_of_the_whole_batch(tmp_path):
    """Without dropout, which is drawn per part."""
    files = tiny_files()
    folder = tmp_path / "bert"
    folder.mkdir()
    for file in files.source.folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes().replace(b'_prob": 0.1', b'_prob": 0.0'))
    files = mlmfast.scorer.open_model(folder)
    found = {}
    for max_batch_tokens in (64, 100_000):
        output = tmp_path / str(max_batch_tokens)
        settings = replace(SHORT, max_batch_tokens=max_batch_tokens)
        finetune(files, rows_of(TRAIN), None, settings, output, Silent())
        lines = (output / "metrics.jsonl").read_text("utf-8").splitlines()
        found[max_batch_tokens] = [json.loads(line) for line in lines]
    for parts, whole in zip(*found.values(), strict=True):
        assert parts["num_targets"] == whole["num_targets"]
        assert parts["loss"] == pytest.approx(whole["loss"], rel=1e-4)
        assert parts["gradient_norm"] == pytest.approx(whole["gradient_norm"], rel=1e-3)


def test_phases_log_first_then_the_rule(tmp_path):
    """Until the switch the run is that of the log score; its losses are those of the rule after."""
    rule = ScoringRule("brier", smoothing=0.1)
    switched = steps(tuned(tmp_path / "a", replace(SHORT, steps=6, log_steps=3, rule=rule)))
    log = steps(tuned(tmp_path / "b", replace(SHORT, steps=6, rule=ScoringRule("log", smoothing=0.1))))
    assert [s["rule"] for s in switched] == ["log"] * 3 + ["brier"] * 3
    assert switched[:3] == log[:3]
    assert switched[3]["loss"] < 2 < log[3]["loss"]


def test_masked_log_and_smoothing_reach_the_loss(tmp_path):
    losses = {
        (rule, masked_log): steps(
            tuned(
                tmp_path / f"{rule}{masked_log}",
                replace(ONE_STEP, rule=ScoringRule(rule, 2.0, 0.1, masked_log)),
                held_out=None,
            )
        )[0]["loss"]
        for rule in ("brier", "spherical")
        for masked_log in (True, False)
    }
    assert losses["brier", True] > losses["brier", False] > -1
    assert losses["spherical", True] > losses["spherical", False] > -1


def test_frozen_weights_stay_and_others_change(tmp_path):
    tuned(tmp_path / "a", replace(SHORT, freeze_embeddings=True, freeze_layers=1))
    before, after = weights(DATA / "models" / "bert"), weights(tmp_path / "a")
    changed = {name for name in after if not torch.equal(before[name], after[name])}
    assert not any(name.startswith(("bert.embeddings.", "bert.encoder.layer.0.")) for name in changed)
    assert any(name.startswith("bert.encoder.layer.1.") for name in changed)
    assert "cls.predictions.bias" in changed


def test_bfloat16_stays_near_float32(tmp_path):
    full = tuned(tmp_path / "a", SHORT)
    half = tuned(tmp_path / "b", replace(SHORT, precision="bfloat16"))
    assert steps(half)[0]["loss"] != steps(full)[0]["loss"]
    assert evaluations(half)[0] == evaluations(full)[0]
    for a, b in zip(steps(half), steps(full), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], abs=0.1)
    assert weights(tmp_path / "b")["cls.predictions.bias"].dtype == torch.float32


def test_gradients_are_clipped(tmp_path):
    """So far that Adam's epsilon outweighs them, and hardly a weight moves; the norm told is the true one."""
    settings = replace(SHORT, weight_decay=0.0)
    runs = {
        limit: steps(tuned(tmp_path / str(limit), replace(settings, max_gradient_norm=limit)))
        for limit in (1e-12, math.inf)
    }
    assert runs[1e-12][0]["gradient_norm"] == runs[math.inf][0]["gradient_norm"] > 1
    before = weights(DATA / "models" / "bert")
    moved = {
        limit: max(float((weight - before[name]).abs().max()) for name, weight in after.items())
        for limit in runs
        if (after := weights(tmp_path / str(limit)))
    }
    assert moved[1e-12] < 1e-6 < 1e-3 < moved[math.inf]


def test_the_models_files_have_the_mode_of_any_other_file(tmp_path):
    for mask, mode in ((0o022, 0o644), (0o027, 0o640)):
        before = os.umask(mask)
        try:
            tuned(tmp_path / str(mask), ONE_STEP, held_out=None)
        finally:
            os.umask(before)
        modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / str(mask)).iterdir()}
        assert set(modes.values()) == {mode}, modes


def test_held_out_texts_without_a_target_are_refused(tmp_path):
    settings = replace(SHORT, masking=MaskingSettings(1e-9))
    with pytest.raises(InputError, match=r"the held-out texts have .* none came to be masked"):
        tuned(tmp_path / "a", settings)
    assert not (tmp_path / "a").exists()


def test_evaluation_needs_held_out_texts(tmp_path):
    with pytest.raises(SettingsError, match=r"no held-out text .*--held-out"):
        tuned(tmp_path / "a", replace(SHORT, evaluate_every=2), held_out=None)
    assert not (tmp_path / "a").exists()


def test_a_folder_with_other_things_in_it_is_not_touched(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "notes").write_text("mine")
    with pytest.raises(OutputError, match=r"not empty \(notes\).*choose another output"):
        tuned(tmp_path / "a", SHORT)
    (tmp_path / "b").write_text("mine")
    with pytest.raises(OutputError, match="is a file"):
        tuned(tmp_path / "b", SHORT)
