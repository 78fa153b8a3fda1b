"""Beginnings of chains: what of a text is free, and what it holds."""

from __future__ import annotations

from functools import cache
from itertools import islice

import numpy as np
import pytest
from hash_engine import scorer_of

from mlmfast.errors import InputError, SettingsError, TextTooLongError
from mlmfast.generation import StartSettings, StartState, allowed_tokens, starts
from mlmfast.scorer import Scorer

WITH_TOKENIZERS = (
    "bert",
    "roberta",
    "albert",
    "camembert",
    "xlm-roberta",
    "modernbert",
    "deberta-v2",
    "esm2",
)
HEAVY = "QVQLVESGGGLVQPGRSL"


@cache
def scorer(name: str = "bert") -> Scorer:
    return scorer_of(name)


def vocabulary(name: str = "bert") -> list[str]:
    return scorer(name).files.tokenizer.vocabulary


def mask(name: str = "bert") -> str:
    return vocabulary(name)[scorer(name).files.tokenizer.special.mask_id]


def start(text: str, name: str = "bert", *, seed: int = 0, **settings: object) -> StartState:
    return next(starts(scorer(name), [text], StartSettings(**settings), seed=seed))


def shown(state: StartState, name: str = "bert") -> str:
    """Its tokens: a free one in brackets, a mask as _."""
    tokens = ["_" if t == mask(name) else t for t in (vocabulary(name)[i] for i in state.input_ids)]
    return " ".join(f"({t})" if free else t for t, free in zip(tokens, state.is_free, strict=True))


@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        ("the cat", {}, "[CLS] (the) (ca) (##t) [SEP]"),
        ("the cat", {"init": "mask"}, "[CLS] (_) (_) (_) [SEP]"),
        ("the [MASK] at", {}, "[CLS] the (_) at [SEP]"),
        ("the[MASK][MASK]at", {}, "[CLS] the (_) (_) at [SEP]"),
        ("the cat", {"length": "5"}, "[CLS] the ca ##t (_) (_) [SEP]"),
        ("", {"length": 2}, "[CLS] (_) (_) [SEP]"),
        ("the cat", {"positions": "2-3"}, "[CLS] the (_) (_) [SEP]"),
        ("the cat", {"positions": "1, 3", "init": "text"}, "[CLS] (the) ca (##t) [SEP]"),
        ("the cat [MASK]", {"positions": "1"}, "[CLS] (_) ca ##t (_) [SEP]"),
        ("the cat", {"length": 5, "positions": "1,5"}, "[CLS] (_) ca ##t (_) (_) [SEP]"),
        ("the cat", {"leader": 1}, "[CLS] the (ca) (##t) [SEP]"),
        ("the cat", {"leader": 1, "init": "mask"}, "[CLS] the (_) (_) [SEP]"),
        ("the cat", {"leader": 2, "positions": "1-3"}, "[CLS] the ca (_) [SEP]"),
        ("the cat the", {"fixed_phrases": ("the",)}, "[CLS] the (ca) (##t) the [SEP]"),
        ("the cat the", {"fixed_phrases": ("cat",), "init": "mask"}, "[CLS] (_) ca ##t (_) [SEP]"),
        ("the cat", {"fixed_phrases": ("the", "ca")}, "[CLS] the ca (##t) [SEP]"),
        ("the cat the", {"fixed_phrases": (" cat ",)}, "[CLS] (the) ca ##t (the) [SEP]"),
        ("the at the", {"fixed_phrases": ("the at", "at the"), "length": 4}, "[CLS] the at the (_) [SEP]"),
        ("the", {"positions": 1}, "[CLS] (_) [SEP]"),
    ],
)
def test_what_is_free_and_what_it_holds(text: str, settings: dict, expected: str) -> None:
    assert shown(start(text, **settings)) == expected


@pytest.mark.parametrize("name", WITH_TOKENIZERS)
def test_masks_and_lengths_of_every_tokenizer(name: str) -> None:
    word = "KAT" if name == "esm2" else "the cat"
    own = scorer(name).files.tokenizer.encode([word])
    content = own.input_ids[own.word_ids != -1]
    template = len(own.input_ids) - len(content)
    state = start(word, name, length=12)
    assert state.is_free.sum() == 12 - len(content)
    assert len(state.input_ids) == 12 + template
    assert state.input_ids[~state.is_free].tolist() == own.input_ids.tolist()
    special = scorer(name).files.tokenizer.special
    assert (state.input_ids[state.is_free] == special.mask_id).all()
    assert state.input_ids.dtype == np.int32
    assert state.is_free.dtype == bool
    alone = start("", name, length=1)
    assert alone.is_free.sum() == 1
    assert len(alone.input_ids) == 1 + template


@pytest.mark.parametrize("name", [name for name in WITH_TOKENIZERS if name != "esm2"])
def test_phrases_of_every_tokenizer(name: str) -> None:
    """Also where a token's span begins with the white space before it."""
    state = start("the cat sat the", name, fixed_phrases=("cat sat",), init="mask")
    ids = scorer(name).files.tokenizer.encode(["the cat sat the"]).input_ids
    kept = [vocabulary(name)[i].strip("Ġ▁#") for i in ids[~state.is_free]]
    assert "".join(kept[1:-1]) == "catsat"
    assert (state.input_ids == ids)[~state.is_free].all()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("roberta", "at\n\n at of", "<s> at Ċ Ċ Ġa t (Ġof) </s>"),
        ("roberta", "at  at of", "<s> at Ġ Ġa t (Ġof) </s>"),
        ("modernbert", "at\n\n at of", "[CLS] at Ċ Ċ Ġa t (Ġof) [SEP]"),
        ("xlm-roberta", "at 人 of", "<s> ▁a t ▁ 人 (▁of) </s>"),
    ],
)
def test_white_space_in_a_phrase_stays_too(name: str, text: str, expected: str) -> None:
    assert shown(start(text, name, fixed_phrases=(text.removesuffix(" of"),)), name) == expected


def test_proteins_are_read_by_letter() -> None:
    assert shown(start("kat*", "esm2", positions="2"), "esm2") == "<cls> K (_) T <eos>"
    assert shown(start("K<mask>T", "esm2"), "esm2") == "<cls> K (_) T <eos>"
    assert shown(start("KATAK", "esm2", fixed_phrases=("at", "K")), "esm2") == "<cls> K A T (A) K <eos>"
    assert shown(start("KA", "esm2", length=4), "esm2") == "<cls> K A (_) (_) <eos>"


@pytest.mark.parametrize("phrase", ["h", "he cat", "the c"])
def test_a_phrase_is_made_of_whole_tokens(phrase: str) -> None:
    with pytest.raises(InputError, match=rf"texts\[0\]: the phrase '{phrase}'"):
        start("the cat at", fixed_phrases=(phrase,))


def test_lengths_are_drawn_uniformly_for_each_chain() -> None:
    settings = StartSettings(length="3-6")
    found = [int(s.is_free.sum()) for s in starts(scorer(), [""] * 400, settings, seed=1)]
    counts = np.bincount(found, minlength=7)
    assert set(found) == {3, 4, 5, 6}
    assert (np.abs(counts[3:] - 100) < 5 * np.sqrt(400 * 0.25 * 0.75)).all()
    own = np.random.SeedSequence(1, spawn_key=(7, 1))  # of chain 7; (7,) is for its steps
    assert found[7] == np.random.Generator(np.random.Philox(own)).integers(3, 6, endpoint=True)
    again = [int(s.is_free.sum()) for s in starts(scorer(), [""] * 390, settings, seed=1, first_chain=10)]
    assert again == found[10:]


def test_random_tokens_are_allowed_ones() -> None:
    allowed = np.zeros(320, dtype=bool)
    allowed[[7, 50, 300]] = True
    states = list(
        starts(scorer(), ["the [MASK] cat"] * 300, StartSettings(init="random"), allowed=allowed, seed=2)
    )
    drawn = [int(state.input_ids[state.is_free][0]) for state in states]
    counts = np.bincount(drawn, minlength=320)[[7, 50, 300]]
    assert counts.sum() == 300
    assert (np.abs(counts - 100) < 5 * np.sqrt(300 * 2 / 9)).all()
    free = start("the cat", init="random")
    special = scorer().files.tokenizer.special
    assert not set(free.input_ids[free.is_free].tolist()) & (special.all_ids | {special.unknown_id})


def test_another_seed_draws_others() -> None:
    one, two = (start("", length=20, init="random", seed=seed) for seed in (1, 2))
    assert one.input_ids.tolist() != two.input_ids.tolist()
    assert one.input_ids.tolist() == start("", length=20, init="random", seed=1).input_ids.tolist()


def test_words_are_put_whole_at_random_free_places() -> None:
    settings = StartSettings(length=8, words=("cat", "the"))
    seen = set()
    for state in starts(scorer(), ["at"] * 200, settings, seed=3):
        text = shown(state)
        assert text.startswith("[CLS] at (")
        assert text.count("(_)") == 7 - 3
        assert "(ca) (##t)" in text
        assert "(the)" in text
        seen.add(text)
    assert len(seen) == 30  # of 6 items the places of two different ones
    full = start("", length=3, words=("cat", "the"))
    assert shown(full) in ("[CLS] (ca) (##t) (the) [SEP]", "[CLS] (the) (ca) (##t) [SEP]")


def test_words_follow_white_space() -> None:
    state = start("", "roberta", length=2, words=("cat",))
    assert shown(state, "roberta") == "<s> (Ġc) (at) </s>"
    assert shown(start("", "esm2", length=3, words=("kat",)), "esm2") == "<cls> (K) (A) (T) <eos>"


@pytest.mark.parametrize(
    ("text", "settings", "reason"),
    [
        ("", {}, "the text has no tokens; give one that has some, or a length"),
        (" ", {"fixed_phrases": ("a",)}, "the phrase 'a' is not in the text"),
        ("the cat", {"length": 3}, "3 tokens already, and the length is 3"),
        ("the cat", {"length": "2-9"}, "3 tokens already, and the length is 2-9"),
        ("the cat", {"positions": "3-4"}, "positions go to 4, but the text has 3 tokens"),
        ("the cat", {"leader": 3}, "no token is free"),
        ("the cat", {"fixed_phrases": ("dog",)}, "phrase 'dog'"),
        ("[MASK] cat", {"leader": 1}, "mask is among the tokens to be kept"),
        ("the [SEP] cat", {}, r"\[SEP\] is a special token"),
        ("the \ud800", {}, "not valid Unicode.*character 5"),
        (7, {}, "expected a string"),
        ("", {"length": 2, "words": ("cat", "the")}, "free tokens: 2, tokens of the words: 3; give fewer"),
    ],
)
def test_texts_that_cannot_be_started_from(text: str, settings: dict, reason: str) -> None:
    with pytest.raises(InputError, match=rf"texts\[0\]: .*{reason}"):
        start(text, **settings)


def test_too_long_for_the_model() -> None:
    with pytest.raises(TextTooLongError, match="66 tokens, but the model takes 64"):
        start("", length=64)
    assert len(start("", length=62).input_ids) == 64


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"length": "0"}, "length is '0'"),
        ({"length": "9-4"}, "length is '9-4'"),
        ({"length": "many"}, "length is 'many'"),
        ({"length": -3}, "length is -3"),
        ({"positions": "3-"}, "positions is '3-'"),
        ({"positions": ""}, "positions is ''"),
        ({"positions": "1,,2"}, "positions is"),
        ({"positions": [1, 2]}, r"positions is \[1, 2\]"),
        ({"fixed_phrases": None}, "fixed_phrases is None"),
        ({"init": "zero"}, "unknown init 'zero'"),
        ({"leader": -1}, "leader is -1"),
        ({"leader": True}, "leader is True"),
        ({"fixed_phrases": "the"}, "fixed_phrases is 'the'"),
        ({"words": (" ",)}, "words is"),
        ({"words": ("\ud800",)}, "words is .* of valid Unicode"),
        ({"words": (7,)}, "words is"),
    ],
)
def test_settings_that_do_not_fit(settings: dict, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        StartSettings(**settings)


def test_what_does_not_fit_the_model_is_refused_at_once() -> None:
    with pytest.raises(SettingsError, match="causal model"):
        starts(scorer("gpt2"), [""], StartSettings(length=3))
    for texts in ("the cat", None, 7):
        with pytest.raises(SettingsError, match="an iterable of strings"):
            starts(scorer(), texts)
    for name in ("seed", "first_chain"):
        with pytest.raises(SettingsError, match=f"{name} is -1"):
            starts(scorer(), ["the cat"], **{name: -1})


def test_starts_are_made_as_they_are_asked_for() -> None:
    def texts():
        yield "the cat"
        raise AssertionError

    assert len(list(islice(starts(scorer(), texts()), 1))) == 1


def tokens_of(allowed: np.ndarray, name: str) -> set[str]:
    return {vocabulary(name)[i] for i in np.flatnonzero(allowed)}


def test_the_alphabet_by_default() -> None:
    tokenizer = scorer().files.tokenizer
    found = allowed_tokens(tokenizer, 330)
    assert len(found) == 330
    assert tokens_of(found, "bert") == set(vocabulary()) - {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ""}
    assert tokens_of(allowed_tokens(scorer("esm2").files.tokenizer, 33), "esm2") == set(
        "ACDEFGHIKLMNPQRSTVWY"
    )


def test_allowed_and_forbidden_tokens() -> None:
    tokenizer = scorer().files.tokenizer
    assert tokens_of(allowed_tokens(tokenizer, 320, ["the", "##t", "at"], ["at"]), "bert") == {"the", "##t"}
    forbidden = allowed_tokens(tokenizer, 320, forbid=["the"])
    assert allowed_tokens(tokenizer, 320).sum() - forbidden.sum() == 1
    protein = scorer("esm2").files.tokenizer
    assert tokens_of(allowed_tokens(protein, 33, ["residues", "X"], ["CM"]), "esm2") == set(
        "ADEFGHIKLNPQRSTVWYX"
    )


@pytest.mark.parametrize(
    ("name", "allow", "forbid", "reason"),
    [
        ("bert", ["zebra"], [], "allow: 'zebra' is no token"),
        ("bert", ["[MASK]"], [], r"allow: '\[MASK\]' is a special token"),
        ("bert", [], ["[UNK]"], r"forbid: '\[UNK\]' is a special token"),
        ("bert", [""], [], "allow: '' is no token"),
        ("bert", ["the"], ["the"], "no token may be sampled"),
        ("bert", ["residues"], [], "is no token"),
        ("esm2", ["<mask>"], [], "'<mask>' is a special token"),
        ("esm2", ["AJ"], [], "'J' is no token"),
        ("esm2", "AC", [], "allow is 'AC'; expected a sequence of tokens"),
        ("bert", [], "the", "forbid is 'the'; expected a sequence of tokens"),
    ],
)
def test_alphabets_that_cannot_be(name: str, allow: list[str], forbid: list[str], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        allowed_tokens(scorer(name).files.tokenizer, 320, allow, forbid)
