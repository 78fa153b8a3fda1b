"""BLEU and unique n-grams one text at a time, as nltk 3 and bert-gen's notebook compute them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence


def ngrams(text: Sequence, order: int) -> list[tuple]:
    return [tuple(text[i : i + order]) for i in range(len(text) - order + 1)]


def corpus_bleu(references_of_each: list[list[Sequence]], samples: list[Sequence], max_order: int) -> float:
    matches, totals = [0] * max_order, [0] * max_order
    length = reference_length = 0
    for references, sample in zip(references_of_each, samples, strict=True):
        for n in range(max_order):
            counts = Counter(ngrams(sample, n + 1))
            of_references = [Counter(ngrams(reference, n + 1)) for reference in references]
            most = {ngram: max(counted[ngram] for counted in of_references) for ngram in counts}
            matches[n] += sum(min(count, most[ngram]) for ngram, count in counts.items())
            totals[n] += max(1, sum(counts.values()))
        length += len(sample)
        reference_length += min((len(r) for r in references), key=lambda r: (abs(r - len(sample)), r))
    if not all(matches):
        return 0.0
    penalty = 1 if length > reference_length else math.exp(1 - reference_length / length)
    return (
        100
        * penalty
        * math.exp(sum(math.log(m / t) for m, t in zip(matches, totals, strict=True)) / max_order)
    )


def self_bleu(samples: list[Sequence], max_order: int) -> float:
    others = [[s for j, s in enumerate(samples) if j != i] for i in range(len(samples))]
    return corpus_bleu(others, samples, max_order)


def counts_of(texts: list[Sequence], order: int) -> Counter:
    return Counter(ngram for text in texts for ngram in ngrams(text, order))


def unique_in_samples(samples: list[Sequence], order: int) -> float | None:
    counts = counts_of(samples, order)
    once = sum(count == 1 for count in counts.values())
    return 100 * once / sum(counts.values()) if counts else None


def unique_against_references(
    samples: list[Sequence], references: list[Sequence], order: int
) -> float | None:
    counts = counts_of(samples, order)
    new = set(counts) - set(counts_of(references, order))
    return 100 * len(new) / sum(counts.values()) if counts else None
