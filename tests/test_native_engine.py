"""The native engine: agreement with the float64 loop on every instruction set, and bit-exact invariance."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_agreement import (
    ENGLISH,
    MASKINGS,
    PROTEIN,
    PROTEINS,
    assert_agrees,
    content_of_length,
    reference_scores,
    texts_for,
)
from tiny_models import (
    MODELS,
    NATIVE,
    NATIVE_BOUNDS,
    PACKED_ATTENTION,
    read_lines,
    tiny_scorer,
    with_heads_of_32,
)

import mlmfast
from mlmfast import _core
from mlmfast.errors import InputError, ModelError, SettingsError, TextTooLongError

NOT_NATIVE = ("mpnet", "deberta-v2", "gpt2", "llama")
TRAINED = {"float32": 1e-4, "bf16x3": 1e-4, "bf16x4": 1e-4, "bfloat16": 0.1, "int8": 1.0}
"""Bounds on the embedded model, per token; bf16x3 and bf16x4 count as exact because they keep these."""


def word_safe(name: str, masking: str) -> list[str]:
    """The texts that can be scored with the masking: no unspaced script where words matter."""
    words = masking in ("word_l2r", "whole_word") and name not in PROTEIN
    return [t for t in texts_for(name) if not (words and "\u4eba" in t)]


@pytest.mark.parametrize("masking", MASKINGS)
@pytest.mark.parametrize("name", NATIVE)
def test_float32_agrees_with_the_reference(name: str, masking: str) -> None:
    texts = word_safe(name, masking)
    results = tiny_scorer(name, engine="native").score(texts, masking)
    for text, result in zip(texts, results, strict=True):
        assert_agrees(result, reference_scores(name, text, masking), NATIVE_BOUNDS["float32"])


def worst_difference(first: list[mlmfast.TextScore], second: list[mlmfast.TextScore]) -> float:
    pairs = [
        (a.log_prob, b.log_prob)
        for x, y in zip(first, second, strict=True)
        for a, b in zip(x.tokens, y.tokens, strict=True)
    ]
    assert pairs
    return max(abs(a - b) for a, b in pairs)


@pytest.mark.parametrize("precision", NATIVE_BOUNDS)
@pytest.mark.parametrize("isa", _core.available_isas())
@pytest.mark.parametrize("name", NATIVE[:10])
def test_every_instruction_set_and_precision(
    name: str, isa: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLMFAST_ISA", isa)
    exact = tiny_scorer(name).score(texts_for(name))
    with mlmfast.load(MODELS / name, engine="native", precision=precision, workers=1) as scorer:
        assert scorer.describe()["isa"] == isa
        assert worst_difference(scorer.score(texts_for(name)), exact) < NATIVE_BOUNDS[precision]


@pytest.mark.parametrize("precision", TRAINED)
def test_precisions_on_real_text(precision: str) -> None:
    texts = read_lines("inaugural.txt")[:20]
    with mlmfast.load(engine="torch", workers=1) as exact, mlmfast.load(precision=precision) as scorer:
        assert scorer.describe()["engine"] == "native"
        assert worst_difference(scorer.score(texts), exact.score(texts)) < TRAINED[precision]


@pytest.mark.parametrize("masking", MASKINGS)
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_packed_attention_under_every_masking(precision: str, masking: str) -> None:
    texts = [*read_lines("inaugural.txt")[:5], *ENGLISH, "No"]
    with mlmfast.load(precision="float32") as exact, mlmfast.load(precision=precision) as scorer:
        if masking in ("none", "stride:3"):
            texts.append(" ".join(["the"] * (scorer.engine.max_length - 2)))
        assert (
            worst_difference(scorer.score(texts, masking), exact.score(texts, masking)) < TRAINED[precision]
        )


@pytest.mark.parametrize("name", NATIVE[:10])
def test_position_limit_and_one_over(name: str) -> None:
    scorer = tiny_scorer(name, engine="native")
    limit = scorer.engine.max_length
    assert limit == tiny_scorer(name).engine.max_length
    text = content_of_length(name, limit)
    assert_agrees(scorer.score([text])[0], reference_scores(name, text, "original"), NATIVE_BOUNDS["float32"])
    with pytest.raises(TextTooLongError):
        scorer.score([content_of_length(name, limit + 1)])


@pytest.mark.parametrize("precision", NATIVE_BOUNDS)
@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert", "esm2", "albert"])
def test_scores_are_the_same_bits_whatever_stands_beside_them(name: str, precision: str) -> None:
    if name in PROTEIN:
        texts = PROTEINS * 2
    else:
        lengths = tiny_scorer(name).files.tokenizer.encode(read_lines("inaugural.txt")).lengths
        texts = [t for t, n in zip(read_lines("inaugural.txt"), lengths, strict=True) if n <= 62][
            :16
        ] + ENGLISH
    assert_same_bits(MODELS / name, precision, texts)


@pytest.mark.parametrize("precision", NATIVE_BOUNDS)
def test_packed_attention_gives_the_same_bits(precision: str) -> None:
    """Heads of 32 features attend over packed operands, where the CPU multiplies bfloat16."""
    assert_same_bits(None, precision, read_lines("inaugural.txt")[:12] + ENGLISH)


@pytest.mark.parametrize("precision", NATIVE_BOUNDS)
@pytest.mark.parametrize("name", PACKED_ATTENTION)
def test_other_models_attend_over_packed_operands(name: str, precision: str, tmp_path: Path) -> None:
    folder = with_heads_of_32(name, tmp_path)
    texts = texts_for(name)
    with (
        mlmfast.load(folder, engine="native", precision="float32") as exact,
        mlmfast.load(folder, engine="native", precision=precision) as scorer,
    ):
        assert worst_difference(scorer.score(texts), exact.score(texts)) < NATIVE_BOUNDS[precision]
    assert_same_bits(folder, precision, texts)


def assert_same_bits(model: Path | None, precision: str, texts: list[str]) -> None:
    def log_probs(texts: list[str], **options: int) -> list[list[float]]:
        with mlmfast.load(model, engine="native", precision=precision, **options) as scorer:
            return [[t.log_prob for t in r.tokens] for r in scorer.score(texts)]

    together = log_probs(texts, workers=1)
    order = np.random.default_rng(7).permutation(len(texts))
    shuffled = log_probs([texts[i] for i in order], workers=2)
    assert [shuffled[i] for i in np.argsort(order)] == together
    assert log_probs(texts, workers=3, max_batch_tokens=70) == together
    assert [log_probs([text], workers=1)[0] for text in texts[:4]] == together[:4]


def test_ranks_entropies_and_top_tokens_agree_with_torch() -> None:
    options = {"rank": True, "entropy": True, "top_k": 4}
    exact = tiny_scorer("bert").score(ENGLISH, **options)
    found = tiny_scorer("bert", engine="native").score(ENGLISH, **options)
    for first, second in zip(exact, found, strict=True):
        for a, b in zip(first.tokens, second.tokens, strict=True):
            assert a.rank == b.rank
            assert a.entropy == pytest.approx(b.entropy, abs=1e-4)
            assert a.top is not None
            assert b.top is not None
            assert [t for t, _ in a.top] == [t for t, _ in b.top]


@pytest.mark.parametrize("name", NOT_NATIVE)
def test_other_models_go_to_torch_only_under_auto(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ModelError, match="model_type"):
        mlmfast.load(MODELS / name, engine="native")
    with caplog.at_level(logging.INFO), mlmfast.load(MODELS / name) as scorer:
        assert scorer.describe()["engine"] == "torch"
    assert "the native engine cannot run this model" in caplog.text


@pytest.mark.parametrize(
    "name", ["bert-no-head", "bert-two-biases", "bert-softcap", "electra-discriminator", "bert-partial"]
)
def test_untrustworthy_checkpoints_are_refused(name: str) -> None:
    with pytest.raises(ModelError):
        mlmfast.load(MODELS / name, engine="native")


def test_options_that_do_not_fit() -> None:
    with pytest.raises(SettingsError, match="native engine runs on 'cpu'"):
        mlmfast.load(MODELS / "bert", engine="native", device="cuda")
    with pytest.raises(SettingsError, match="bf16x3"):
        mlmfast.load(MODELS / "bert", engine="torch", precision="bf16x3")


def test_scoring_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "import mlmfast\n"
        "print(mlmfast.load().score(['The cat sat on the mat.'])[0].score)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(run.stdout) == pytest.approx(-18.555, abs=1e-2)


def core_model() -> _core.Model:
    return _core.Model(str(MODELS / "bert"), "float32")


def valid_batch() -> dict[str, object]:
    """One text of three tokens, its middle one masked and asked for."""
    return {
        "input_ids": np.array([2, 7, 3], dtype=np.int32),
        "text_offsets": np.array([0, 3], dtype=np.int64),
        "token_type_ids": None,
        "row_text": np.array([0], dtype=np.int32),
        "mask_positions": np.array([1], dtype=np.int32),
        "mask_offsets": np.array([0, 1], dtype=np.int64),
        "target_positions": np.array([1], dtype=np.int32),
        "target_ids": np.array([7], dtype=np.int32),
        "target_offsets": np.array([0, 1], dtype=np.int64),
        "mask_token_id": 4,
    }


def test_a_valid_batch_scores() -> None:
    found = core_model().score(**valid_batch())
    assert found["log_prob"].shape == (1,)
    assert found["log_prob"][0] < 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("input_ids", np.array([2, 100_000, 3], dtype=np.int32)),
        ("input_ids", np.array([2, -1, 3], dtype=np.int32)),
        ("input_ids", np.array([2, 7], dtype=np.int32)),
        ("text_offsets", np.array([0, 0, 3], dtype=np.int64)),
        ("text_offsets", np.array([1, 3], dtype=np.int64)),
        ("text_offsets", np.array([], dtype=np.int64)),
        ("row_text", np.array([1], dtype=np.int32)),
        ("mask_positions", np.array([3], dtype=np.int32)),
        ("mask_offsets", np.array([0, 2], dtype=np.int64)),
        ("target_positions", np.array([-1], dtype=np.int32)),
        ("target_ids", np.array([100_000], dtype=np.int32)),
        ("target_offsets", np.array([1, 0], dtype=np.int64)),
        ("mask_token_id", -1),
        ("token_type_ids", np.array([0, 2, 0], dtype=np.int32)),
    ],
)
def test_batches_that_do_not_fit_are_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"must|expected"):
        core_model().score(**{**valid_batch(), name: value})


def test_several_python_threads_use_one_scorer() -> None:
    from concurrent.futures import ThreadPoolExecutor

    texts = read_lines("inaugural.txt")[:8]
    with mlmfast.load(workers=2) as scorer:
        expected = [r.score for r in scorer.score(texts)]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: [r.score for r in scorer.score(texts)], range(8)))
    assert found == [expected] * 8


def test_errors_in_the_middle_keep_their_place() -> None:
    with pytest.raises(InputError, match=r"texts\[1\]"):
        tiny_scorer("bert", engine="native").score(["a", "the " * 500])
