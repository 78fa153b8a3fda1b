"""From texts to results through an engine that hashes: what comes out is what a loop over rows says."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hash_engine import HashEngine, files_of, log_prob, scorer_of, value_of, word_start
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import mask_positions
from tiny_models import MODELS

from mlmfast import window_groups
from mlmfast.engines import Outputs
from mlmfast.errors import InputError, SettingsError, TextTooLongError
from mlmfast.results import WORD, TextScore
from mlmfast.scorer import RowCounts, Scorer
from mlmfast.tokenization import load_tokenizer, prepare_protein
from mlmfast.types import RowBatch, TargetOutputs

MASKINGS = ("original", "word_l2r", "whole_word", "stride:1", "stride:3", "none")
MANY = settings(deadline=None, max_examples=25)
TEXTS = st.lists(
    st.lists(
        st.sampled_from(["We", "the", "people", "unconstitutional", "[MASK]", "中", "?!", "é", "\t", "zq"]),
        max_size=6,
    ).map(" ".join),
    max_size=6,
)


def plain(name: str, text: str, **options: bool) -> tuple[tuple[int, ...], list[int | None], list[Any]]:
    """ids, words (None for a special token) and spans of one text."""
    texts = files_of(name).tokenizer.encode([text], **options)
    words = [None if w == -1 else w for w in texts.word_ids.tolist()]
    return tuple(texts.input_ids.tolist()), words, texts.char_spans.tolist()


def masked(name: str, ids: tuple[int, ...], masks: tuple[int, ...]) -> tuple[int, ...]:
    mask_id = files_of(name).tokenizer.special.mask_id
    assert mask_id is not None
    return tuple(mask_id if i in masks else token for i, token in enumerate(ids))


def expected_rows(
    name: str, text: str, masking: str, *, score_eos: bool = False, **options: bool
) -> tuple[list[float], list[tuple[int, ...]]]:
    """Log-probabilities of the scored tokens in order, and the rows a text asks for."""
    ids, words, _ = plain(name, text, **options)
    scored = [i for i, word in enumerate(words) if word is not None]
    if score_eos and scored and words[-1] is None:
        scored.append(len(ids) - 1)
    masks_of = {i: mask_positions(i, scored, words, masking) for i in scored}
    found = [float(log_prob(masked(name, ids, masks_of[i]), i, ids[i])) for i in scored]
    return found, [masked(name, ids, masks) for masks in dict.fromkeys(masks_of.values())]


def log_probs(result: TextScore) -> list[float]:
    return [token.log_prob for token in result.tokens]


@pytest.mark.parametrize("masking", MASKINGS)
@MANY
@given(texts=TEXTS, score_eos=st.booleans(), parse_special=st.booleans())
def test_results_are_those_of_a_loop_over_rows(
    masking: str, texts: list[str], score_eos: bool, parse_special: bool
) -> None:
    counts = RowCounts()
    with scorer_of() as scorer:
        results = scorer.score(
            texts, masking, score_eos=score_eos, parse_special=parse_special, counts=counts
        )
    expected = [
        expected_rows("bert", t, masking, score_eos=score_eos, parse_special=parse_special) for t in texts
    ]
    assert [log_probs(r) for r in results] == [found for found, _ in expected]
    assert [r.score for r in results] == [math.fsum(f) if f else None for f, _ in expected]
    assert [r.text for r in results] == texts
    assert [r.flags for r in results] == [() if f else ("empty",) for f, _ in expected]
    assert [r.num_tokens for r in results] == [len(f) for f, _ in expected]
    unknown = files_of("bert").tokenizer.special.unknown_id
    assert [r.num_unknown for r in results] == [
        plain("bert", t, parse_special=parse_special)[0].count(unknown) for t in texts
    ]
    assert counts.num_rows == sum(len(rows) for _, rows in expected)
    assert counts.num_computed == len({row for _, rows in expected for row in rows})


@MANY
@given(
    texts=TEXTS,
    workers=st.integers(1, 3),
    budget=st.sampled_from([1, 7, 40, 10_000]),
    window=st.integers(1, 4),
    data=st.data(),
)
def test_workers_budget_windows_and_order_change_nothing(
    texts: list[str], workers: int, budget: int, window: int, data: st.DataObject
) -> None:
    with scorer_of() as scorer:
        alone = {text: log_probs(scorer.score([text], "word_l2r")[0]) for text in texts}
    order = data.draw(st.permutations(texts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_groups, "WINDOW_TEXTS", window)
        with scorer_of(workers=workers, max_batch_tokens=budget) as scorer:
            together = [log_probs(r) for r in scorer.score(order, "word_l2r")]
    assert together == [alone[text] for text in order]


def test_rank_and_entropy_stay_with_their_tokens() -> None:
    with scorer_of() as scorer:
        [result] = scorer.score(["We the people"], rank=True, entropy=True)
    ids, words, _ = plain("bert", "We the people")
    scored = [i for i, w in enumerate(words) if w is not None]
    keys = [(masked("bert", ids, (i,)), i, ids[i]) for i in scored]
    assert [t.rank for t in result.tokens] == [int(-value_of("rank", *key)) for key in keys]
    assert [t.entropy for t in result.tokens] == [float(value_of("entropy", *key)) for key in keys]


# Texts longer than the model.

LONG = "We the people of the United States in order to form a more perfect union"


@MANY
@given(max_length=st.integers(3, 26), score_eos=st.booleans())
def test_truncated_texts_score_their_first_tokens(max_length: int, score_eos: bool) -> None:
    ids, _, _ = plain("bert", LONG)
    with scorer_of(max_length=max_length) as scorer:
        [result] = scorer.score([LONG], overlong="truncate", score_eos=score_eos)
    row = ids if len(ids) <= max_length else (*ids[: max_length - 1], ids[-1])
    targets = range(1, len(row) - (not score_eos))
    assert log_probs(result) == [float(log_prob(masked("bert", row, (i,)), i, row[i])) for i in targets]
    assert result.flags == (("truncated",) if len(ids) > max_length else ())


@MANY
@given(max_length=st.integers(3, 26))
def test_windowed_texts_score_each_token_where_it_is_most_central(max_length: int) -> None:
    ids, _, _ = plain("bert", LONG)
    content, capacity = ids[1:-1], max_length - 2
    with scorer_of(max_length=max_length) as scorer:
        [result, again] = scorer.score([LONG, LONG], overlong="window")
    expected = []
    starts = [0]
    if len(ids) > max_length:
        starts = [*range(0, len(content) - capacity, max(capacity // 2, 1)), len(content) - capacity]
    for place, token in enumerate(content):
        start = min(reversed(starts), key=lambda s: abs(place + 0.5 - s - capacity / 2))
        row = (ids[0], *content[start : start + capacity], ids[-1])
        position = place - start + 1
        expected.append(float(log_prob(masked("bert", row, (position,)), position, token)))
    assert log_probs(result) == expected
    assert again == result
    assert result.flags == (("windowed",) if len(ids) > max_length else ())


def test_an_overlong_text_is_an_error_that_says_what_to_do() -> None:
    with scorer_of(max_length=10) as scorer:
        results = list(scorer.score_iter(["We", LONG, "people"], on_error="skip"))
        assert [r.error is None for r in results] == [True, False, True]
        assert log_probs(results[2]) == expected_rows("bert", "people", "original")[0]
        with pytest.raises(
            TextTooLongError, match=r"^texts\[1\]: \d+ tokens, but the model takes 10 .*overlong"
        ):
            scorer.score(["We", LONG, "people"])


@pytest.mark.parametrize("overlong", ["truncate", "window"])
@pytest.mark.parametrize("text", ["[MASK] " * 30 + "We", "We" + " [SEP]" * 30, "[MASK] " * 30])
def test_special_tokens_that_leave_no_room_are_an_error(overlong: str, text: str) -> None:
    with scorer_of(max_length=12) as scorer:
        results = scorer.score(["We", text, "people"], overlong=overlong, parse_special=True, on_error="skip")
        assert [log_probs(r) for r in results[::2]] == [
            expected_rows("bert", t, "original")[0] for t in ("We", "people")
        ]
        assert "special tokens leave no room" in str(results[1].error)
        assert (results[1].score, results[1].num_tokens) == (None, 0)


# Words.


@pytest.mark.parametrize("masking", ["whole_word", "word_l2r"])
@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("roberta", "We 日本語", "without spaces"),
        ("xlm-roberta", "ありがとう", "without spaces"),
        ("roberta", "สวัสดี", "without spaces"),
        ("roberta", "xqzj" * 40, "whole text"),
    ],
)
def test_words_that_are_none_are_refused(masking: str, name: str, text: str, why: str) -> None:
    with scorer_of(name, max_length=200) as scorer:
        refused, fine = scorer.score([text, "We the people"], masking, on_error="skip")
        assert why in str(refused.error)
        assert "use masking 'original'" in str(refused.error)
        assert log_probs(fine) == expected_rows(name, "We the people", masking)[0]
        assert scorer.score([text])[0].error is None


@pytest.mark.parametrize("text", ["We 中 people", "xqzj " * 40, "We " + "xqzj" * 40])
def test_other_words_are_not(text: str) -> None:
    with scorer_of("roberta", max_length=300) as scorer:
        [result] = scorer.score([text], "whole_word")
    assert log_probs(result) == expected_rows("roberta", text, "whole_word")[0]


def test_a_word_no_window_holds_is_refused_and_the_longest_one_is_not() -> None:
    def text_with(num_tokens: int) -> str:
        return "a b " + "q" * num_tokens + " c d"

    for text, refused in ((text_with(2), False), (text_with(3), True)):
        ids, words, _ = plain("roberta", text)
        assert max(words.count(w) for w in words) in (3, 4)
        assert len(ids) > 6
        with scorer_of("roberta", max_length=6) as scorer:
            [result] = scorer.score([text], "whole_word", overlong="window", on_error="skip")
        assert ("no window holds it whole" in str(result.error)) == refused
        assert refused or result.num_tokens == len(ids) - 2


# Proteins.


def test_protein_spans_are_places_in_the_original() -> None:
    original = " mk t\nAx* "
    with scorer_of("esm2") as scorer:
        result, empty, star = scorer.score([original, " \n", "*"])
    assert [(t.token, original[t.start : t.end]) for t in result.tokens] == [
        *(("M", "m"), ("K", "k"), ("T", "t"), ("A", "A"), ("X", "x"))
    ]
    assert result.flags == ("changed:5",)
    assert (empty.flags, empty.score) == (("empty",), None)
    assert (star.flags, star.score) == (("empty", "changed:1"), None)
    assert log_probs(result) == expected_rows("esm2", prepare_protein(original).sequence, "original")[0]


def test_a_typed_special_token_of_a_protein_is_one_under_parse_special() -> None:
    with scorer_of("esm2") as scorer:
        [result] = scorer.score(["mk<mask>t"], parse_special=True)
    assert [(t.token, t.start, t.end) for t in result.tokens] == [("M", 0, 1), ("K", 1, 2), ("T", 8, 9)]
    assert result.flags == ("changed:3",)
    assert log_probs(result) == expected_rows("esm2", "MK<mask>T", "original", parse_special=True)[0]


# Causal models.


def causal_words(name: str, text: str) -> list[tuple[str, float | None]]:
    """p(word) = p(tokens) P(a word starts or the text ends | after) / P(a word starts | before), the division
    only where the word's first token carries a leading space (Pimentel & Meister 2024, theorem 1)."""
    tokenizer = files_of(name).tokenizer
    assert tokenizer.word_starts is not None
    ids, _, spans = plain(name, text, causal=True)
    words = []
    used: set[int] = set()
    for match in WORD.finditer(text):
        mine = [
            i
            for i in range(1, len(ids) - 1)
            if spans[i][0] < match.end() and spans[i][1] > match.start() and i not in used
        ]
        used |= set(mine)
        if not mine:
            words.append((match[0], None))
            continue
        total = sum(float(log_prob(ids[:i], i, ids[i])) for i in mine)
        total += float(word_start(ids[: mine[-1] + 1]))
        if tokenizer.word_starts[ids[mine[0]]]:
            total -= float(word_start(ids[: mine[0]]))
        words.append((match[0], total))
    return words


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@MANY
@given(texts=TEXTS, score_eos=st.booleans(), budget=st.sampled_from([1, 50]))
def test_causal_tokens_and_words(name: str, texts: list[str], score_eos: bool, budget: int) -> None:
    with scorer_of(name, max_batch_tokens=budget) as scorer:
        results = scorer.score(texts, "causal", score_eos=score_eos)
    for text, result in zip(texts, results, strict=True):
        ids, words, _ = plain(name, text, causal=True)
        has_content = any(w is not None for w in words)
        scored = range(1, len(ids) - 1 + (score_eos and has_content))
        assert log_probs(result) == [float(log_prob(ids[:i], i, ids[i])) for i in scored]
        assert result.num_unknown == sum(
            ids[i] == files_of(name).tokenizer.special.unknown_id for i in scored if words[i] is not None
        )
        expected = causal_words(name, text) if has_content else []
        assert [word.word for word in result.words] == [word for word, _ in expected]
        for word, (_, total) in zip(result.words, expected, strict=True):
            assert word.log_prob == (None if total is None else pytest.approx(total, rel=1e-6))


def test_a_causal_text_may_have_one_token_more_than_the_model_reads() -> None:
    ids, _, _ = plain("gpt2", LONG, causal=True)
    with scorer_of("gpt2", max_length=len(ids) - 1) as scorer:
        assert scorer.score([LONG], "causal")[0].num_tokens == len(ids) - 2
    with scorer_of("gpt2", max_length=len(ids) - 2) as scorer, pytest.raises(TextTooLongError):
        scorer.score([LONG], "causal")


def test_without_a_begin_token_the_first_token_is_not_scored() -> None:
    published = files_of("gpt2")
    tokenizer = load_tokenizer(MODELS / "gpt2", "gpt2")
    tokenizer.special = replace(tokenizer.special, bos_id=None)
    with Scorer(replace(published, tokenizer=tokenizer), HashEngine(causal=True), workers=1) as scorer:
        result, short = scorer.score(["We the people", "?"], "causal")
    ids = tuple(tokenizer.encode(["We the people"], causal=True).input_ids.tolist())
    assert log_probs(result) == [float(log_prob(ids[:i], i, ids[i])) for i in range(1, len(ids) - 1)]
    assert (short.score, short.num_tokens) == (None, 0)


# What goes wrong in the middle.


def until_error(results: Iterator[TextScore]) -> tuple[list[TextScore], Exception | None]:
    """The results that came, and what was raised after them, if anything."""
    found = []
    try:
        while True:
            found.append(next(results))
    except StopIteration:
        return found, None
    except Exception as error:
        return found, error


BAD = [None, 3, b"bytes", "half \ud83d pair", InputError("cannot be read", line=7)]


@MANY
@given(items=st.lists(st.sampled_from(["We", "the people", "", *BAD]), max_size=8), window=st.integers(1, 3))
def test_bad_texts_keep_their_place(items: list[Any], window: int) -> None:
    with pytest.MonkeyPatch.context() as patch, scorer_of() as scorer:
        patch.setattr(window_groups, "WINDOW_TEXTS", window)
        results = scorer.score(items, on_error="skip")
        assert len(results) == len(items)
        for item, result in zip(items, results, strict=True):
            bad = not isinstance(item, str) or "\ud83d" in item
            assert (result.error is not None) == bad
            assert log_probs(result) == ([] if bad else expected_rows("bert", item, "original")[0])
            assert result.score is None if bad or not item else result.score is not None
        first = next((k for k, r in enumerate(results) if r.error is not None), None)
        delivered, error = until_error(scorer.score_iter(items))
    assert delivered == results[:first]
    assert isinstance(error, InputError) == (first is not None)
    place = "line 7" if first is not None and items[first] is BAD[4] else f"texts[{first}]"
    assert error is None or str(error).startswith(f"{place}: ")


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_number_that_is_none_is_an_error(bad: float) -> None:
    class Broken(HashEngine):
        def score(self, batch: RowBatch, outputs: Outputs) -> TargetOutputs:
            found = super().score(batch, outputs)
            people = files_of("bert").tokenizer.vocabulary.index("people")
            found.log_prob[batch.target_ids == people] = bad
            return found

    with Scorer(files_of("bert"), Broken(), workers=1) as scorer:
        results = scorer.score(["We", "the people", "We"], on_error="skip")
    assert [r.error is None for r in results] == [True, False, True]
    assert results[1].score is None


def test_an_input_that_raises_in_the_middle_comes_after_the_texts_before_it() -> None:
    def texts() -> Iterator[str]:
        yield from ("We", "the", "people", "We the", "the people")
        raise OSError("the disk is gone")

    for window in (1, 2, 5, 100):
        with pytest.MonkeyPatch.context() as patch, scorer_of() as scorer:
            patch.setattr(window_groups, "WINDOW_TEXTS", window)
            found, error = until_error(scorer.score_iter(texts()))
        assert isinstance(error, OSError)
        assert [r.text for r in found] == ["We", "the", "people", "We the", "the people"]


def test_an_engine_that_raises_comes_after_the_windows_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_groups, "WINDOW_TEXTS", 1)
    bad = files_of("bert").tokenizer.vocabulary.index("people")

    def refuse(rows: list[tuple[int, ...]]) -> None:
        if any(bad in row for row in rows):
            raise RuntimeError("out of memory")

    texts = ["We", "the", "We the", "We people", "the"]
    with scorer_of(max_batch_tokens=1, workers=2) as scorer:
        scorer.engine.before_call = refuse  # type: ignore[attr-defined]
        found, error = until_error(scorer.score_iter(texts))
        assert isinstance(error, RuntimeError)
        assert [r.text for r in found] == texts[:3]
        assert [r.text for r in scorer.score(["We", "the"])] == ["We", "the"]


def calls_after_a_stop(*, engine_fails: bool) -> tuple[int, int]:
    """Engine calls up to a stop in the second window's second batch, and when all that was queued is done.

    Windows hold one text, batches one row, and there is one worker, so the work is done in the order in
    which it was asked for: once a later text has its result, nothing before it is left.
    """
    texts = [f"We the people of the United States {end}" for end in ("", "?", "? ?", "? ? ?")]
    num_first = len(expected_rows("bert", texts[0], "original")[1])
    at_second, go_on = threading.Event(), threading.Event()
    with scorer_of(max_batch_tokens=1) as scorer, pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_groups, "WINDOW_TEXTS", 1)
        engine: Any = scorer.engine

        def stand_still(rows: list[tuple[int, ...]]) -> None:
            if engine.num_calls == num_first + 1 and engine_fails:
                raise RuntimeError("out of memory")
            if engine.num_calls == num_first + 2:
                at_second.set()
                assert go_on.wait(30)

        engine.before_call = stand_still
        results = scorer.score_iter(texts)
        assert next(results).text == texts[0]
        assert at_second.wait(30)
        if engine_fails:
            with pytest.raises(RuntimeError):
                next(results)
        else:
            results.close()  # type: ignore[attr-defined]
        go_on.set()
        assert scorer.score(["We"])[0].num_tokens == 1
        return num_first + 2, engine.num_calls - 1


def test_a_consumer_that_stops_leaves_no_work_behind() -> None:
    at_stop, at_end = calls_after_a_stop(engine_fails=False)
    assert at_end == at_stop


def test_an_engine_that_fails_leaves_no_work_behind() -> None:
    at_stop, at_end = calls_after_a_stop(engine_fails=True)
    assert at_end == at_stop


@pytest.mark.parametrize("masking", ["causal", "student", "stride:0"])
def test_a_masking_that_does_not_fit_is_refused_at_once(masking: str) -> None:
    with scorer_of() as scorer, pytest.raises(SettingsError, match="masking"):
        scorer.score_iter(["We"], masking)
