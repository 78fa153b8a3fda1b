"""Models named by a hub id, fetched from a local server that speaks as the hub does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hub_server import Hub
from hub_user import TEXTS, User
from student_models import make_student
from tiny_models import MODELS

import mlmfast

NAME = "someone/tiny"
NOT_NEEDED = {
    "pytorch_model.bin": b"a pickle",
    "training_args.bin": b"another",
    "tf_model.h5": b"other frameworks'",
    "model.fp16.safetensors": b"a variant",
    "onnx/model.onnx": b"an export of someone else's",
    "onnx/config.json": b"{}",
    "checkpoint-10/model.safetensors": b"an earlier state",
    "trainer_state.json": b"{}",
    "README.md": b"about",
}
BERT_FILES = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


def scores_of(folder: Path, **options: object) -> list[float | None]:
    with mlmfast.load(folder, workers=1, **options) as scorer:  # type: ignore[arg-type]
        return [result.score for result in scorer.score(TEXTS)]


def changed_bert(folder: Path) -> Path:
    """A BERT with other scores, by another epsilon of its layer norms."""
    shutil.copytree(MODELS / "bert", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"layer_norm_eps": 1e-1}))
    return folder


def test_only_what_is_needed_is_fetched_and_only_once(hub: Hub, user: User) -> None:
    commit = hub.add(NAME, MODELS / "bert", **NOT_NEEDED)
    assert user.load({"model": NAME}) == [{"scores": scores_of(MODELS / "bert"), "revision": commit}]
    assert hub.fetched() == BERT_FILES
    assert user.load({"model": NAME})[0]["revision"] == commit
    assert hub.requests == [("GET", f"/api/models/{NAME}")]
    blobs = list((user.cache / "models--someone--tiny" / "blobs").iterdir())
    assert len(blobs) == len(BERT_FILES)


def test_the_command_line_scores_it_and_says_which_commit(hub: Hub, user: User, tmp_path: Path) -> None:
    commit = hub.add(NAME, MODELS / "bert")
    output = tmp_path / "out.jsonl"
    run = user.score("--model", NAME, "--output", output)
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("\n") == 1, "the summary, and no bars where there is no terminal"
    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert [record["score"] for record in records] == scores_of(MODELS / "bert")
    settings = json.loads(Path(f"{output}.meta.json").read_text())["settings"]
    assert (settings["model"], settings["revision"]) == (NAME, commit)


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub: Hub, user: User, tmp_path: Path) -> None:
    old = hub.add(NAME, MODELS / "bert")
    hub.models[NAME].revisions |= {"v1": old}
    changed = changed_bert(tmp_path / "changed")
    new = hub.models[NAME].commit(changed, "main", "feature/new")
    before, after = scores_of(MODELS / "bert"), scores_of(changed)
    assert before != after
    asked = {None: new, "main": new, "feature/new": new, "v1": old, old: old, new: new}
    answers = user.load(*({"model": NAME, "revision": revision} for revision in asked))
    expected = [{"scores": before if c == old else after, "revision": c} for c in asked.values()]
    assert answers == expected
    # Without the hub they are known as they were last seen.
    assert user.load(*({"model": NAME, "revision": r} for r in asked), HF_HUB_OFFLINE="1") == expected


def test_a_branch_that_moved_is_followed(hub: Hub, user: User, tmp_path: Path) -> None:
    old = hub.add(NAME, MODELS / "bert")
    new = hub.models[NAME].commit(changed_bert(tmp_path / "changed"), "next")
    answers = user.load({"model": NAME}, {"model": NAME, "revision": "next"})
    assert [answer["revision"] for answer in answers] == [old, new]
    hub.models[NAME].revisions["main"] = new
    hub.fetched()
    assert user.load({"model": NAME})[0]["revision"] == new
    assert hub.fetched() == []
    assert user.load({"model": NAME}, HF_HUB_OFFLINE="1")[0]["revision"] == new


def test_shards_and_vocabularies_of_other_families(hub: Hub, user: User, tmp_path: Path) -> None:
    folders = {
        "a/sharded": (MODELS / "bert-sharded", "model-00002-of-00002.safetensors"),
        "an/esm": (MODELS / "esm2", "vocab.txt"),
        "a/student": (make_student(tmp_path / "student"), "model.safetensors"),
    }
    for name, (folder, _) in folders.items():
        hub.add(name, folder, **{"surplus-00001-of-00002.safetensors": b""})
    answers = user.load(*({"model": name} for name in folders))
    fetched = hub.fetched()
    assert "surplus-00001-of-00002.safetensors" not in fetched
    for answer, (folder, needed) in zip(answers, folders.values(), strict=True):
        assert answer.get("scores") == scores_of(folder), answer
        assert needed in fetched


def test_pickles_are_fetched_only_when_allowed(hub: Hub, user: User) -> None:
    hub.add(NAME, MODELS / "bert-pickle-only")
    hub.add("a/both", MODELS / "bert", **NOT_NEEDED)
    (refused,) = user.load({"model": NAME})
    assert f"{NAME}: only pickled weights (pytorch_model.bin)" in str(refused["error"])
    assert "--allow-pickle" in str(refused["error"])
    assert hub.fetched() == []
    answers = user.load({"model": NAME, "allow_pickle": True}, {"model": "a/both", "allow_pickle": True})
    assert hub.fetched().count("pytorch_model.bin") == 1, "that of the model which has nothing else"
    bert = scores_of(MODELS / "bert")
    assert answers[0]["scores"] == pytest.approx(bert, abs=1e-4)
    assert answers[1]["scores"] == bert


def test_without_weights_nothing_is_fetched(hub: Hub, user: User) -> None:
    hub.add(NAME, MODELS / "bert-no-weights")
    assert "no weights; expected model.safetensors" in str(user.load({"model": NAME})[0]["error"])
    assert hub.fetched() == []


def test_of_an_export_the_graph_is_fetched(hub: Hub, user: User) -> None:
    files = ["mlmfast_onnx.json", "model.onnx", "model.onnx.data"]
    hub.add(NAME, MODELS / "bert", **{file: file.encode() for file in files})
    user.load({"model": NAME})
    assert set(hub.fetched()) == {*BERT_FILES, *files} - {"model.safetensors"}


def test_two_models_do_not_mix(hub: Hub, user: User) -> None:
    commits = [hub.add("a/b", MODELS / "bert"), hub.add("a/c", MODELS / "roberta")]
    answers = user.load({"model": "a/b"}, {"model": "a/c"})
    assert [answer["revision"] for answer in answers] == commits
    assert [answer["scores"] for answer in answers] == [scores_of(MODELS / n) for n in ("bert", "roberta")]
