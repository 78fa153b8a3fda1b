"""Results: words from spans, the causal correction by hand, perplexities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlmfast.errors import SettingsError
from mlmfast.metrics import CorpusTotals, corpus_totals
from mlmfast.results import TextScore, TokenColumns, perplexity, word_scores
from mlmfast.types import Token

VOCABULARY = ["a", "b", "c"]
TEXT = st.text(alphabet=st.sampled_from("ab中é \t\n\u00a0\u3000\u2028\x85\x1f"), max_size=24)


def columns_of(spans: list[tuple[int, int]], log_probs: list[float], **more: object) -> TokenColumns:
    return TokenColumns(
        ids=np.arange(len(spans), dtype=np.int32) % len(VOCABULARY),
        log_probs=np.array(log_probs, dtype=np.float32),
        char_spans=np.array(spans, dtype=np.int32).reshape(-1, 2),
        vocabulary=VOCABULARY,
        **more,  # type: ignore[arg-type]
    )


@st.composite
def spans_in(draw: st.DrawFn, length: int) -> list[tuple[int, int]]:
    """Starts and ends in order; spans overlap, are empty, touch several words, or leave characters out."""
    num_tokens = draw(st.integers(0, 12))
    places = st.lists(st.integers(0, length), min_size=num_tokens, max_size=num_tokens).map(sorted)
    starts, ends = draw(places), draw(places)
    return [(min(s, e), max(s, e)) for s, e in zip(starts, ends, strict=True)]


@given(text=TEXT, data=st.data(), causal=st.booleans())
def test_a_word_sums_the_tokens_that_touch_it_first(text: str, data: st.DataObject, causal: bool) -> None:
    spans = data.draw(spans_in(len(text)))
    log_probs = [-(2.0**-k) for k in range(len(spans))]
    starts = np.array([[-100 - k, -1000 - 3 * k] for k in range(len(spans))], dtype=np.float32).reshape(-1, 2)
    columns = columns_of(spans, log_probs, word_starts=starts if causal else None)

    places = [k for k, c in enumerate(text) if not c.isspace()]
    firsts = [k for k in places if k - 1 not in places]
    words = [(k, next(e for e in range(k + 1, len(text) + 1) if e not in places)) for k in firsts]
    tokens_of: dict[tuple[int, int], list[int]] = {word: [] for word in words}
    for k, (start, end) in enumerate(spans):
        # A token of no width at a word's first character is that word's leading space.
        touched = [w for w in words if start < w[1] and (end > w[0] or start == end == w[0])]
        if touched:
            tokens_of[touched[0]].append(k)
    expected = []
    for (start, end), tokens in tokens_of.items():
        total = None
        if tokens:
            total = math.fsum(log_probs[k] for k in tokens)
            if causal:
                total += (-1000.0 - 3 * tokens[-1]) - (-100.0 - tokens[0])
        expected.append((text[start:end], total, start, end, len(tokens)))
    found = [(w.word, w.log_prob, w.start, w.end, w.num_tokens) for w in word_scores(text, columns)]
    assert found == expected


def test_words_of_a_truncated_text_are_those_scored() -> None:
    assert TextScore("a b c d", "original", -2.0, 2, flags=("truncated",), end=3).num_words == 2
    assert TextScore("a b c d", "original", -2.0, 2, end=3).num_words == 4


def test_the_causal_correction_by_hand() -> None:
    """After Pimentel & Meister 2024, theorem 1, and Oh & Schuler 2024.

    The probability of a boundary moves from the word after to the word before, so that the words' product
    is that of the tokens and of the end.
    """
    p_we, p_the, p_m = 0.5, 0.25, 0.125
    boundary_after_we, boundary_after_the, boundary_at_end = 0.8, 0.1, 0.4
    starts = np.log(
        [[1.0, boundary_after_we], [boundary_after_we, boundary_after_the], [1.0, boundary_at_end]]
    )
    columns = columns_of(
        [(0, 2), (2, 6), (6, 7)],
        np.log([p_we, p_the, p_m]).tolist(),
        word_starts=starts.astype(np.float32),
    )
    first, second = word_scores("We them", columns)
    assert first.log_prob is not None
    assert second.log_prob is not None
    assert math.exp(first.log_prob) == pytest.approx(p_we * boundary_after_we, rel=1e-6)
    expected = p_the * p_m * boundary_at_end / boundary_after_we
    assert math.exp(second.log_prob) == pytest.approx(expected, rel=1e-6)
    together = math.exp(first.log_prob + second.log_prob)
    assert together == pytest.approx(p_we * p_the * p_m * boundary_at_end, rel=1e-6)


def test_a_token_over_two_words_counts_for_the_first() -> None:
    first, second = word_scores("a b", columns_of([(0, 3)], [-1.0]))
    assert (first.log_prob, first.num_tokens) == (-1.0, 1)
    assert (second.log_prob, second.num_tokens) == (None, 0)


def test_tokens_carry_what_was_asked_for() -> None:
    columns = columns_of(
        [(0, 1), (1, 2)],
        [-1.0, -2.0],
        ranks=np.array([0, 7], dtype=np.int32),
        entropies=np.array([0.5, 1.5], dtype=np.float32),
        top_ids=np.array([[2, 0], [1, 2]], dtype=np.int32),
        top_log_probs=np.array([[-0.5, -1.0], [-0.25, -4.0]], dtype=np.float32),
    )
    result = TextScore("ab", "original", -3.0, 2, columns=columns)
    assert result.tokens == (
        Token("a", -1.0, 0, 1, 0, 0.5, (("c", -0.5), ("a", -1.0))),
        Token("b", -2.0, 1, 2, 7, 1.5, (("b", -0.25), ("c", -4.0))),
    )
    assert [w.log_prob for w in result.words] == [-3.0]


def test_a_result_without_a_score_has_no_tokens_and_no_words() -> None:
    for result in (
        TextScore("", "original", None, flags=("empty",)),
        TextScore(None, "none", None, error="x"),
    ):
        assert (result.tokens, result.words, result.pppl) == ((), (), None)


@pytest.mark.parametrize("masking", ["original", "word_l2r", "whole_word"])
def test_pll_is_the_score_where_it_is_one(masking: str) -> None:
    assert TextScore("a", masking, -2.0, 1).pll == -2.0


@pytest.mark.parametrize("masking", ["stride:1", "stride:3", "none", "student", "causal"])
def test_pll_of_another_masking_raises(masking: str) -> None:
    with pytest.raises(SettingsError, match=r"does not give a pseudo-log-likelihood; read \.score"):
        _ = TextScore("a", masking, -2.0, 1).pll


def test_perplexity_at_its_ends() -> None:
    assert perplexity(-6.0, 3) == math.exp(2)
    assert perplexity(-1e300, 1) == math.inf
    assert perplexity(0.0, 1) == 1.0
    assert perplexity(0.0, 0) is None


RESULTS = st.lists(
    st.one_of(
        st.tuples(TEXT, st.floats(-50, 0), st.integers(1, 9), st.integers(0, 3)).map(
            lambda r: TextScore(r[0], "original", r[1], r[2], r[3])
        ),
        st.just(TextScore("", "original", None, flags=("empty",))),
        st.just(TextScore("bad", "original", None, error="too long")),
        st.just(TextScore(None, "original", None, error="unreadable")),
    ),
    max_size=8,
)


@given(results=RESULTS)
def test_corpus_figures_are_over_tokens_and_not_over_texts(results: list[TextScore]) -> None:
    totals = corpus_totals(results)
    scored = [r for r in results if r.score is not None and r.text is not None]
    num_tokens = sum(r.num_tokens for r in scored)
    # A text's white-space words, those that `words` lists.
    num_words = sum(len(word_scores(r.text or "", columns_of([], []))) for r in scored)
    total = sum(r.score or 0.0 for r in scored)
    assert totals == CorpusTotals(
        num_texts=len(results),
        num_scored=len(scored),
        num_empty=sum("empty" in r.flags for r in results),
        num_errors=sum(r.error is not None for r in results),
        num_tokens=num_tokens,
        num_unknown=sum(r.num_unknown for r in scored),
        num_words=num_words,
        score=total,
    )
    assert totals.pppl == (math.exp(-total / num_tokens) if num_tokens else None)
    assert totals.word_pppl == (perplexity(total, num_words) if num_words else None)


def test_corpus_perplexity_weighs_texts_by_their_tokens() -> None:
    results = [TextScore("a", "original", -4.0, 1), TextScore("a b c", "original", -6.0, 9)]
    assert corpus_totals(results).pppl == pytest.approx(math.e)
