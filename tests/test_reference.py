"""The reference and the test data hold what the other tests take for granted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from reference import (
    forward,
    load_model,
    load_tokenizer,
    mask_positions,
    reference_log_probs,
    reference_tokenize,
)
from safetensors.numpy import load_file

DATA = Path(__file__).parent / "data"
MODELS = DATA / "models"
TEXTS = DATA / "text"

CAUSAL = ("gpt2", "llama")
MASKED = (
    "bert",
    "roberta",
    "distilbert",
    "albert",
    "electra",
    "xlm-roberta",
    "camembert",
    "mpnet",
    "deberta-v2",
    "deberta-v2-legacy",
    "modernbert",
    "esm2",
)
FAMILIES = (*MASKED, *CAUSAL)
MAX_TOKENS = dict.fromkeys(FAMILIES, 64) | {"modernbert": 96, "llama": 96}
SENTENCE = "We the people seek peace."
PROTEIN = "MKTPEDRVFRATDEYSDFVM"

Array = NDArray[np.float64]


def read_lines(name: str) -> list[str]:
    return (TEXTS / name).read_text(encoding="utf-8").removesuffix("\n").split("\n")


def text_for(name: str) -> str:
    return PROTEIN if name == "esm2" else SENTENCE


def full_length_ids(name: str) -> list[int]:
    """Ids of as many tokens as the model takes."""
    text = PROTEIN * 10 if name == "esm2" else " ".join(read_lines("inaugural.txt")[:20])
    ids, _ = reference_tokenize(MODELS / name, text)
    assert len(ids) > MAX_TOKENS[name]
    return ids[: MAX_TOKENS[name]]


def load(name: str, **settings: Any) -> tuple[Any, dict[str, Any]]:
    folder = MODELS / name
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    model_class = getattr(transformers, config["architectures"][0])
    model, loading = model_class.from_pretrained(
        folder, attn_implementation="eager", output_loading_info=True, **settings
    )
    return model.eval(), loading


def softmax(x: Array) -> Array:
    e: Array = np.exp(x - x.max(axis=-1, keepdims=True))
    total: Array = e.sum(axis=-1, keepdims=True)
    return e / total


@pytest.mark.parametrize("name", FAMILIES)
def test_published_layout_loads_with_no_key_missing_or_left_over(name: str) -> None:
    _, loading = load(name)
    assert {problem: keys for problem, keys in loading.items() if keys} == {}


@pytest.mark.parametrize("name", FAMILIES)
def test_float32_agrees_with_the_reference_at_full_length(name: str) -> None:
    ids = full_length_ids(name)
    exact = forward(load_model(MODELS / name, causal=name in CAUSAL), ids)
    single = forward(load(name)[0], ids)
    assert torch.isfinite(exact).all()
    assert 0 < (exact - single).abs().max() < 5e-5


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("bert", {"hidden_act": "gelu_new"}),
        ("roberta", {"hidden_act": "gelu_new"}),
        ("roberta", {"pad_token_id": 0}),
        ("distilbert", {"activation": "gelu_new"}),
        ("albert", {"hidden_act": "gelu"}),
        ("electra", {"hidden_act": "gelu_new"}),
        ("xlm-roberta", {"hidden_act": "gelu_new"}),
        ("camembert", {"hidden_act": "gelu_new"}),
        ("mpnet", {"hidden_act": "gelu_new"}),
        ("deberta-v2", {"pos_att_type": "p2c"}),
        ("deberta-v2-legacy", {"conv_act": "tanh"}),
        ("modernbert", {"hidden_activation": "gelu_new"}),
        ("modernbert", {"local_attention": 18}),
        ("modernbert", {"layer_types": ["full_attention", "sliding_attention"] * 2}),
        ("esm2", {"token_dropout": False}),
        ("gpt2", {"activation_function": "gelu"}),
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
    ],
)
def test_a_wrong_setting_shows_in_the_log_probs(name: str, change: dict[str, Any]) -> None:
    ids = full_length_ids(name)
    config = transformers.AutoConfig.from_pretrained(MODELS / name, **change)
    wrong = load(name, config=config)[0].double()
    right = forward(load_model(MODELS / name, causal=name in CAUSAL), ids)
    assert (forward(wrong, ids) - right).abs().max() > 1e-3


@pytest.mark.parametrize("name", MASKED)
def test_every_masking_scores_the_tokens_of_words_and_no_others(name: str) -> None:
    ids, words = reference_tokenize(MODELS / name, text_for(name))
    is_special = np.array([word is None for word in words])
    assert is_special[[0, -1]].all()
    assert not is_special[1:-1].any()
    for masking in ("original", "word_l2r", "whole_word", "stride:3", "none"):
        log_probs = np.array(reference_log_probs(MODELS / name, ids, words, masking))
        assert (np.isnan(log_probs) == is_special).all()
        assert (log_probs[~is_special] < 0).all()
        with_eos = np.array(reference_log_probs(MODELS / name, ids, words, masking, score_eos=True))
        assert np.isnan(with_eos).nonzero()[0].tolist() == [0]


def test_masked_positions_of_each_masking() -> None:
    words = [None, 0, 1, 1, 1, 2, None]
    scored = [1, 2, 3, 4, 5]
    expected = {
        "original": [(1,), (2,), (3,), (4,), (5,)],
        "word_l2r": [(1,), (2, 3, 4), (3, 4), (4,), (5,)],
        "whole_word": [(1,), (2, 3, 4), (2, 3, 4), (2, 3, 4), (5,)],
        "stride:2": [(1, 3, 5), (2, 4), (1, 3, 5), (2, 4), (1, 3, 5)],
        "stride:9": [(1,), (2,), (3,), (4,), (5,)],
        "none": [()] * 5,
    }
    for masking, rows in expected.items():
        assert [mask_positions(i, scored, words, masking) for i in scored] == rows
    assert mask_positions(6, [*scored, 6], words, "whole_word") == (6,)
    with pytest.raises(ValueError, match="unknown masking 'both'"):
        mask_positions(1, scored, words, "both")


def numpy_bert(tensors: dict[str, NDArray[np.float32]], ids: list[int]) -> Array:
    """BERT's log-probabilities float64 [tokens, vocabulary] from Devlin et al. 2019 and numpy alone."""
    weights: dict[str, Array] = {name: value.astype(np.float64) for name, value in tensors.items()}

    def linear(x: Array, name: str) -> Array:
        product: Array = x @ weights[f"{name}.weight"].T
        return product + weights[f"{name}.bias"]

    def layer_norm(x: Array, name: str) -> Array:
        centred: Array = x - x.mean(axis=-1, keepdims=True)
        variance: Array = (centred**2).mean(axis=-1, keepdims=True)
        return centred / np.sqrt(variance + 1e-12) * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def gelu(x: Array) -> Array:
        erf: Array = np.vectorize(math.erf)(x / math.sqrt(2))
        return x * 0.5 * (1 + erf)

    def heads(x: Array) -> Array:
        split: Array = x.reshape(len(ids), 2, 16)
        return np.swapaxes(split, 0, 1)

    table = "bert.embeddings.{}_embeddings.weight"
    words = weights[table.format("word")]
    x = words[ids] + weights[table.format("position")][: len(ids)] + weights[table.format("token_type")][0]
    x = layer_norm(x, "bert.embeddings.LayerNorm")
    for layer in range(2):
        prefix = f"bert.encoder.layer.{layer}"
        q, k, v = (heads(linear(x, f"{prefix}.attention.self.{part}")) for part in ("query", "key", "value"))
        context = softmax(q @ k.transpose(0, 2, 1) / 4) @ v
        attended = linear(context.transpose(1, 0, 2).reshape(x.shape), f"{prefix}.attention.output.dense")
        x = layer_norm(x + attended, f"{prefix}.attention.output.LayerNorm")
        inner = gelu(linear(x, f"{prefix}.intermediate.dense"))
        x = layer_norm(x + linear(inner, f"{prefix}.output.dense"), f"{prefix}.output.LayerNorm")
    x = gelu(linear(x, "cls.predictions.transform.dense"))
    x = layer_norm(x, "cls.predictions.transform.LayerNorm")
    return np.log(softmax(x @ words.T + weights["cls.predictions.bias"]))


@pytest.mark.parametrize("name", ["bert", "bert-legacy-names", "bert-sharded", "bert-pickle-only"])
def test_bert_pll_by_numpy_alone(name: str) -> None:
    """The variants are bert under other names and in other files: they score alike."""
    tensors = load_file(MODELS / "bert" / "model.safetensors")
    ids, words = reference_tokenize(MODELS / name, SENTENCE)
    expected = []
    for position in range(1, len(ids) - 1):
        masked = [4 if i == position else token for i, token in enumerate(ids)]
        expected.append(numpy_bert(tensors, masked)[position, ids[position]])
    assert ids[-1] == 3
    log_probs = reference_log_probs(MODELS / name, ids, words, "original")
    np.testing.assert_allclose(log_probs[1:-1], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_log_probs_come_from_the_tokens_before(name: str) -> None:
    ids, words = reference_tokenize(MODELS / name, SENTENCE)
    log_probs = reference_log_probs(MODELS / name, ids, words, "causal")
    assert math.isnan(log_probs[0])
    for i in range(1, len(ids)):
        model = load_model(MODELS / name, causal=True)
        with torch.no_grad():
            logits = model(torch.tensor([ids[:i]])).logits[0, -1].numpy()
        assert log_probs[i] == pytest.approx(math.log(softmax(logits)[ids[i]]), abs=1e-10)


def test_causal_eos_is_scored_only_on_request() -> None:
    folder = MODELS / "llama"
    ids, words = reference_tokenize(folder, SENTENCE)
    log_probs = reference_log_probs(folder, [*ids, 2], [*words, None], "causal")
    with_eos = reference_log_probs(folder, [*ids, 2], [*words, None], "causal", score_eos=True)
    assert math.isnan(log_probs[-1])
    assert with_eos[-1] < 0
    assert log_probs[1:-1] == with_eos[1:-1]


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "esm2"])
def test_special_tokens_typed_in_a_text_are_plain_text(name: str) -> None:
    folder = MODELS / name
    roles = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    specials = {value for role, value in roles.items() if role.endswith("_token") and isinstance(value, str)}
    special_ids = set(load_tokenizer(folder).convert_tokens_to_ids(sorted(specials)))
    for token in specials:
        ids, words = reference_tokenize(folder, f"of {token} the{token}")
        typed = [token_id for token_id, word in zip(ids, words, strict=True) if word is not None]
        unknown = load_tokenizer(folder).unk_token_id
        assert len(typed) > 4
        assert not set(typed) & (special_ids - {unknown})


@pytest.mark.parametrize("name", FAMILIES)
def test_tokenizer_agrees_with_auto_tokenizer(name: str) -> None:
    texts = [PROTEIN, PROTEIN[::-1]] if name == "esm2" else read_lines("inaugural.txt")
    auto = load_tokenizer(MODELS / name)
    vocab_size = transformers.AutoConfig.from_pretrained(MODELS / name).vocab_size
    for text in texts:
        ids, _ = reference_tokenize(MODELS / name, text)
        assert ids == auto(text).input_ids
        assert max(ids) < vocab_size


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "esm2"])
@pytest.mark.parametrize("file", ["inaugural.txt", "masc.txt", "awkward.txt"])
def test_every_line_of_the_texts_fits_every_model(name: str, file: str) -> None:
    for line in read_lines(file):
        assert len(reference_tokenize(MODELS / name, line)[0]) <= 62


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("bert-no-head", "cls.predictions.transform.dense.weight"),
        ("bert-partial", "bert.encoder.layer.1.output.dense.weight"),
        ("electra-discriminator", "generator_predictions.dense.weight"),
    ],
)
def test_reference_refuses_a_checkpoint_with_tensors_missing(name: str, missing: str) -> None:
    with pytest.raises(ValueError, match=missing):
        load_model(MODELS / name)


def test_variants_of_bert_are_what_their_names_say() -> None:
    tensors = load_file(MODELS / "bert" / "model.safetensors")

    legacy = load_file(MODELS / "bert-legacy-names" / "model.safetensors")
    assert any(name.endswith("LayerNorm.gamma") for name in legacy)
    assert not any("LayerNorm.weight" in name for name in legacy)
    np.testing.assert_array_equal(
        legacy["cls.predictions.decoder.bias"], legacy["cls.predictions.bias"], strict=True
    )
    assert "cls.predictions.decoder.weight" not in legacy

    two = load_file(MODELS / "bert-two-biases" / "model.safetensors")
    assert not np.allclose(two["cls.predictions.decoder.bias"], two["cls.predictions.bias"])

    encoder = load_file(MODELS / "bert-no-head" / "model.safetensors")
    assert "embeddings.word_embeddings.weight" in encoder
    assert not any(name.startswith(("bert.", "cls.")) for name in encoder)

    index = json.loads((MODELS / "bert-sharded" / "model.safetensors.index.json").read_text())["weight_map"]
    shards = {file: load_file(MODELS / "bert-sharded" / file) for file in set(index.values())}
    assert len(shards) == 2
    assert set(index) == set(tensors)
    for name, file in index.items():
        np.testing.assert_array_equal(shards[file][name], tensors[name])

    pickled = torch.load(MODELS / "bert-pickle-only" / "pytorch_model.bin", weights_only=True)
    assert not list((MODELS / "bert-pickle-only").glob("*.safetensors"))
    assert set(pickled) == set(tensors)
    assert not [path for path in (MODELS / "bert-no-weights").iterdir() if path.suffix != ".json"]

    decoder, loading = load("bert-decoder")
    assert type(decoder).__name__ == "BertLMHeadModel"
    assert decoder.config.is_decoder
    assert not loading["missing_keys"]
    assert load("bert-softcap")[0].config.final_logit_softcapping == 30.0


def test_variants_of_the_tokenizer_are_what_their_names_say() -> None:
    assert load_tokenizer(MODELS / "bert").mask_token_id == 4
    assert load_tokenizer(MODELS / "bert-no-mask-token").mask_token_id is None
    mask_is_unk = load_tokenizer(MODELS / "bert-mask-is-unk")
    assert mask_is_unk.mask_token_id == mask_is_unk.unk_token_id == 1
    for name in ("bert-no-mask-token", "bert-mask-is-unk"):
        assert "[MASK]" not in (MODELS / name / "tokenizer.json").read_text(encoding="utf-8")


def test_sapiens_gives_its_golden_plls() -> None:
    folder = MODELS / "sapiens-vh"
    golden = json.loads((folder / "golden_pll.json").read_text(encoding="utf-8"))
    assert golden
    for entry in golden[::2]:
        ids, words = reference_tokenize(folder, entry["seq"])
        log_probs = reference_log_probs(folder, ids, words, "original")[1:-1]
        np.testing.assert_allclose(log_probs, entry["per_token"], rtol=0, atol=1e-5)
        assert sum(log_probs) == pytest.approx(entry["pll"], abs=1e-5)


def test_sapiens_gives_the_probabilities_its_authors_printed() -> None:
    folder = MODELS / "sapiens-vh"
    golden = json.loads((folder / "golden_authors_probs.json").read_text(encoding="utf-8"))
    vocabulary = load_tokenizer(folder).get_vocab()
    letters = [vocabulary["<mask>"] if letter == "*" else vocabulary[letter] for letter in golden["input"]]
    table = forward(load_model(folder), [vocabulary["<s>"], *letters, vocabulary["</s>"]]).exp()
    columns = [vocabulary[letter] for letter in golden["columns"]]
    assert golden["rows"]
    for row, printed in golden["rows"].items():
        np.testing.assert_allclose(table[int(row) + 1, columns], printed, rtol=0, atol=5.1e-7)


def test_models_stay_small() -> None:
    sizes = {
        folder.name: sum(path.stat().st_size for path in folder.iterdir()) for folder in MODELS.iterdir()
    }
    assert sum(sizes.values()) < 6_000_000
    assert max(size for name, size in sizes.items() if name != "sapiens-vh") < 250_000


def test_blimp_sample_has_two_pairs_of_each_paradigm() -> None:
    pairs = [json.loads(line) for line in read_lines("blimp_sample.jsonl")]
    paradigms = [pair["paradigm"] for pair in pairs]
    assert len(set(paradigms)) == 67
    assert {paradigms.count(paradigm) for paradigm in paradigms} == {2}
    assert all(pair["good"] != pair["bad"] for pair in pairs)
