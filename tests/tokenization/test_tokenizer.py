"""Bulk columns against the tokenizers library, one text at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models_at_hand import (
    EVERY_SPECIAL,
    FAMILIES,
    MANY,
    MODELS,
    TEXTS,
    WITH_JSON,
    tokenizer_of,
)
from reference import load_plain_tokenizer, load_tokenizer
from tokenizers import Tokenizer as RustTokenizer
from tokenizers.models import BPE

from mlmfast.tokenization import SpecialTokens, Tokenizer
from mlmfast.types import TokenizedTexts

Plain = tuple[list[int], list[int], list[tuple[int, int]]]


def split(texts: TokenizedTexts) -> list[Plain]:
    """(ids, words, spans) of each text."""
    return [
        (
            texts.input_ids[a:b].tolist(),
            texts.word_ids[a:b].tolist(),
            [(int(s), int(e)) for s, e in texts.char_spans[a:b]],
        )
        for a, b in zip(texts.offsets[:-1], texts.offsets[1:], strict=True)
    ]


def one_at_a_time(name: str, text: str) -> Plain:
    encoding = load_plain_tokenizer(MODELS / name).encode(text)
    return encoding.ids, [-1 if w is None else w for w in encoding.word_ids], encoding.offsets


@pytest.mark.parametrize("name", FAMILIES)
@MANY
@given(texts=st.lists(TEXTS, max_size=5))
def test_columns_are_those_of_single_texts(name: str, texts: list[str]) -> None:
    assert split(tokenizer_of(name).encode(texts)) == [one_at_a_time(name, text) for text in texts]


@pytest.mark.parametrize("name", FAMILIES)
@MANY
@given(text=TEXTS)
def test_spans_are_in_the_text_and_in_order(name: str, text: str) -> None:
    [(_, words, spans)] = split(tokenizer_of(name).encode([text]))
    ordinary = [span for span, word in zip(spans, words, strict=True) if word >= 0]
    assert all(0 <= start <= end <= len(text) for start, end in ordinary)
    assert ordinary == sorted(ordinary)
    seen = [word for word in words if word >= 0]
    assert seen == sorted(seen)


@pytest.mark.parametrize("name", WITH_JSON)
@pytest.mark.parametrize("pattern", ["{}", "a{}b", " {} ", "{0}{0}", "We {} the people{}", "{}.", "\n{}\t"])
def test_a_typed_special_token_is_plain_text(name: str, pattern: str) -> None:
    tokenizer = tokenizer_of(name)
    texts = [pattern.replace("{0}", "{}").replace("{}", token) for token in EVERY_SPECIAL]
    [(frame, _, _)] = split(tokenizer.encode([""]))
    special = tokenizer.special.all_ids - {tokenizer.special.unknown_id}
    for text, (ids, words, spans) in zip(texts, split(tokenizer.encode(texts)), strict=True):
        assert [i for i, w in zip(ids, words, strict=True) if w == -1] == frame, text
        assert not special & {i for i, w in zip(ids, words, strict=True) if w >= 0}, text
        if tokenizer.special.mask_id != tokenizer.special.unknown_id:
            assert (ids, words, spans) == one_at_a_time(name, text)


@pytest.mark.parametrize("name", FAMILIES)
@MANY
@given(text=TEXTS)
def test_a_typed_special_token_is_one_under_parse_special(name: str, text: str) -> None:
    tokenizer = tokenizer_of(name)
    encoding = RustTokenizer.from_file(str(MODELS / name / "tokenizer.json")).encode(text)
    [(ids, words, spans)] = split(tokenizer.encode([text], parse_special=True))
    assert (ids, spans) == (encoding.ids, encoding.offsets)
    assert words == [
        -1 if word is None or index in tokenizer.special.all_ids else word
        for index, word in zip(encoding.ids, encoding.word_ids, strict=True)
    ]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_special_token_can_be_typed_under_parse_special(name: str) -> None:
    tokenizer = tokenizer_of(name)
    text = " ".join(["A", *tokenizer.special_names, "A"])
    [(ids, words, _)] = split(tokenizer.encode([text], parse_special=True))
    [(frame, _, _)] = split(tokenizer.encode([""]))
    found = [i for i, w in zip(ids, words, strict=True) if w == -1]
    assert sorted(found) == sorted([*frame, *tokenizer.special.all_ids])


@MANY
@given(text=st.text(max_size=12) | TEXTS)
@pytest.mark.parametrize("name", ["gpt2", "roberta"])
def test_byte_level_spans_cover_the_characters_whose_bytes_a_token_holds(name: str, text: str) -> None:
    """RoBERTa's tokenizer leaves the spaces at a token's ends out, GPT-2's does not."""
    tokenizer = tokenizer_of(name)
    trimmed = "Ġ" if name == "roberta" else ""
    char_of_byte = [k for k, c in enumerate(text) for _ in c.encode()]
    [(ids, words, spans)] = split(tokenizer.encode([text]))
    place = 0
    for index, word, span in zip(ids, words, spans, strict=True):
        if word == -1:
            continue
        token = tokenizer.vocabulary[index]  # one character per byte
        before = len(token) - len(token.lstrip(trimmed)) if trimmed else 0
        kept = len(token.strip(trimmed)) if trimmed else len(token)
        if kept:
            chars = char_of_byte[place + before : place + before + kept]
            assert span == (chars[0], chars[-1] + 1)
        else:
            assert span[0] == span[1]
        place += len(token)
    assert place == len(char_of_byte)


def test_one_character_in_several_tokens_gives_each_its_span() -> None:
    [(_, _, spans)] = split(tokenizer_of("gpt2").encode(["a 日本"]))
    assert spans[-6:] == [(2, 3)] * 3 + [(3, 4)] * 3


def test_tokens_added_after_a_special_one_keep_their_ids(tmp_path: Path) -> None:
    """ModernBERT lists `[unused0]` and the like, which are ordinary, behind its special tokens."""
    tree = json.loads((MODELS / "modernbert" / "tokenizer.json").read_text(encoding="utf-8"))
    last = tree["added_tokens"][-1]
    unused = last | {"id": last["id"] + 1, "content": "[unused0]", "special": False, "lstrip": False}
    tree["added_tokens"].append(unused)
    tokenizer = Tokenizer(json.dumps(tree), tokenizer_of("modernbert").special)
    [(ids, words, _)] = split(tokenizer.encode(["[unused0]"]))
    assert (ids[1:-1], words[1:-1]) == ([unused["id"]], [0])


def test_an_unknown_token_that_is_also_special_is_still_found() -> None:
    model = BPE({"</s>": 0, "a": 1, "b": 2}, [], unk_token="</s>")
    rust = RustTokenizer(model)
    rust.add_special_tokens(["</s>"])
    special = SpecialTokens(None, 0, 0, 0, None, frozenset({0}))
    [(ids, words, _)] = split(Tokenizer(rust.to_str(), special).encode(["a?b"]))
    assert (ids, words) == ([1, 0, 2], [0, 0, 0])


def test_truncation_and_padding_of_the_file_are_not_applied() -> None:
    rust = RustTokenizer.from_file(str(MODELS / "bert" / "tokenizer.json"))
    rust.enable_truncation(4)
    rust.enable_padding(length=40)
    limited = Tokenizer(rust.to_str(), tokenizer_of("bert").special)
    texts = ["We the people of the United States", "", "a"]
    for parse_special in (False, True):
        expected = tokenizer_of("bert").encode(texts, parse_special=parse_special)
        assert split(limited.encode(texts, parse_special=parse_special)) == split(expected)


@MANY
@given(texts=st.lists(st.text(alphabet="ACDEFGHIKLMNPQRSTVWYXBZUO", max_size=30), max_size=5))
def test_an_esm_vocabulary_reads_sequences_as_transformers_does(texts: list[str]) -> None:
    theirs = load_tokenizer(MODELS / "esm2")
    for (ids, words, spans), text in zip(split(tokenizer_of("esm2").encode(texts)), texts, strict=True):
        assert ids == theirs(text)["input_ids"]
        assert words == [-1, *range(len(text)), -1]
        assert spans[1:-1] == [(k, k + 1) for k in range(len(text))]


# Causal texts: begin, content, end, whatever part of it the template adds.

SHAPES = ("none", "bos", "eos", "both")


def with_template(name: str, shape: str, bos: int | None, eos: int | None) -> Tokenizer:
    tree: dict[str, Any] = json.loads((MODELS / name / "tokenizer.json").read_text(encoding="utf-8"))
    special = tokenizer_of(name).special
    ends = {"bos": [special.bos_id, None], "eos": [None, special.eos_id], "none": [None, None]}
    first, last = ends.get(shape, [special.bos_id, special.eos_id])
    tokens = [{"SpecialToken": {"id": "B", "type_id": 0}}] if first is not None else []
    tokens.append({"Sequence": {"id": "A", "type_id": 0}})
    tokens += [{"SpecialToken": {"id": "E", "type_id": 0}}] if last is not None else []
    used = {"B": special.bos_id, "E": special.eos_id}
    tree["post_processor"] = {
        "type": "TemplateProcessing",
        "single": tokens,
        "pair": [*tokens, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {k: {"id": k, "ids": [v], "tokens": [k]} for k, v in used.items()},
    }
    changed = SpecialTokens(None, special.unknown_id, bos, eos, None, special.all_ids)
    return Tokenizer(json.dumps(tree), changed)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["gpt2", "llama"])
@MANY
@given(texts=st.lists(st.sampled_from(["", " ", "We the", "x", "<s>", "<|endoftext|>"]), max_size=6))
def test_causal_texts_begin_and_end_once_under_any_template(name: str, shape: str, texts: list[str]) -> None:
    """gpt2's two tokens are one and the same; empty texts are in every place."""
    special = tokenizer_of(name).special
    assert (special.bos_id == special.eos_id) == (name == "gpt2")
    tokenizer = with_template(name, shape, special.bos_id, special.eos_id)
    bare = split(with_template(name, "none", None, None).encode(texts))
    encoded = tokenizer.encode(texts, causal=True)
    assert split(encoded) == [
        ([special.bos_id, *ids, special.eos_id], [-1, *words, -1], [(0, 0), *spans, (0, 0)])
        for ids, words, spans in bare
    ]
    assert encoded.token_type_ids is None


@pytest.mark.parametrize(("begins", "ends"), [(True, False), (False, True), (False, False)])
def test_a_missing_begin_or_end_token_is_left_out(begins: bool, ends: bool) -> None:
    special = tokenizer_of("llama").special
    bos, eos = special.bos_id if begins else None, special.eos_id if ends else None
    texts = ["", "We", "", "the people"]
    found = split(with_template("llama", "none", bos, eos).encode(texts, causal=True))
    bare = split(with_template("llama", "none", None, None).encode(texts))
    assert [ids for ids, _, _ in found] == [[bos] * begins + ids + [eos] * ends for ids, _, _ in bare]


def test_published_causal_tokenizers_begin_and_end_once() -> None:
    for name in ("gpt2", "llama"):
        special = tokenizer_of(name).special
        for ids, words, _ in split(tokenizer_of(name).encode(["", "We the people", ""], causal=True)):
            assert (ids[0], ids[-1]) == (special.bos_id, special.eos_id)
            assert [w for w in words if w == -1] == [-1, -1]


def test_word_starts_are_tokens_that_begin_with_white_space_or_end_the_text() -> None:
    for name in ("gpt2", "llama"):
        tokenizer = tokenizer_of(name)
        starts = tokenizer.word_starts
        assert starts is not None
        expected = [
            token[:1] in set("Ġ▁ĉĊċČč") or i == tokenizer.special.eos_id
            for i, token in enumerate(tokenizer.vocabulary)
        ]
        assert np.array_equal(starts, expected)
    assert tokenizer_of("bert").word_starts is None
