"""A Scorer in the hands of programs: options, threads, forks, and its end."""

from __future__ import annotations

import multiprocessing

import pytest
from tiny_models import MODELS, tiny_scorer

import mlmfast
from mlmfast.errors import SettingsError

TEXTS = ["the people of the nation", "a", "union and liberty"]


@pytest.mark.parametrize("method", ["score", "score_iter", "pppl", "totals"])
@pytest.mark.parametrize("texts", ["one string", None, 3])
def test_texts_must_be_an_iterable_of_strings(method: str, texts: object) -> None:
    with pytest.raises(SettingsError, match="expected an iterable of strings"):
        getattr(tiny_scorer("bert", engine="native"), method)(texts)


@pytest.mark.parametrize("options", [{"top_k": 1.5}, {"top_k": "3"}, {"top_k": True}, {"masking": 3}])
def test_options_of_a_wrong_type(options: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        tiny_scorer("bert", engine="native").score(TEXTS, **options)  # type: ignore[arg-type]


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_scorer_works_in_a_forked_child_after_use() -> None:
    scorer = tiny_scorer("bert", engine="native")
    expected = [r.score for r in scorer.score(TEXTS)]
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=lambda: queue.put([r.score for r in scorer.score(TEXTS)]))
    child.start()
    assert queue.get(timeout=60) == expected
    child.join(timeout=60)


def test_a_closed_scorer_says_so() -> None:
    scorer = mlmfast.load(MODELS / "bert", workers=1)
    half_read = scorer.score_iter(TEXTS * 1000)
    next(half_read)
    scorer.close()
    with pytest.raises(SettingsError, match="was closed"):
        list(half_read)
    with pytest.raises(SettingsError, match="was closed"):
        scorer.score(TEXTS)


def test_long_texts_come_in_small_windows() -> None:
    """The first result does not wait for 512 long texts."""
    read = []

    def texts() -> object:
        for number in range(400):
            read.append(number)
            yield "the people " * 1000

    results = tiny_scorer("bert", engine="native").score_iter(texts(), "original", overlong="truncate")  # type: ignore[arg-type]
    next(results)
    assert len(read) < 10
