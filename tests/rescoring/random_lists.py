"""Random corpora of lists for the tests: small numbers, so that ties are common."""

from __future__ import annotations

import numpy as np

from mlmfast.rescoring.corpus import NBestCorpus
from mlmfast.scheduling.csr import offsets_of


def random_corpus(
    rng: np.random.Generator, num_lists: int, most_hypotheses: int, num_features: int
) -> NBestCorpus:
    """Features and error statistics (edits, reference length) without meaning."""
    counts = rng.integers(1, most_hypotheses + 1, num_lists)
    total = int(counts.sum())
    lengths = np.repeat(rng.integers(5, 9, num_lists), counts)
    return NBestCorpus(
        ids=tuple(f"list{index}" for index in range(num_lists)),
        features=rng.integers(-6, 7, (total, num_features)).astype(np.float64),
        statistics=np.stack([rng.integers(0, 6, total), lengths], axis=1),
        offsets=offsets_of(counts),
    )


def learnable_corpus(rng: np.random.Generator, num_lists: int, weight: float) -> NBestCorpus:
    """Lists of 8 in which first pass + weight * LM is the right criterion up to noise: its best hypothesis
    has the fewest edits of 10 words."""
    count = 8
    first_pass = -np.sort(rng.exponential(5, (num_lists, count)), axis=1)
    lm = rng.normal(-40, 4, (num_lists, count))
    quality = first_pass + weight * lm + rng.normal(0, 1, (num_lists, count))
    edits = np.argsort(np.argsort(-quality, axis=1), axis=1)
    statistics = np.stack([edits, np.full_like(edits, 10)], axis=2)
    return NBestCorpus(
        ids=tuple(f"spk{index % 12:02}-{index}" for index in range(num_lists)),
        features=np.stack([first_pass, lm], axis=2).reshape(-1, 2),
        statistics=statistics.reshape(-1, 2).astype(np.int64),
        offsets=np.arange(num_lists + 1) * count,
    )
