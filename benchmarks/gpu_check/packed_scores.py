"""Log-probabilities by an engine, as a worker gives them."""

from __future__ import annotations

from collections.abc import Sequence

import mlmfast


def log_probs(
    folder: str | None,
    texts: Sequence[str],
    maskings: Sequence[str],
    *,
    engine: str,
    precision: str,
    device: str,
) -> dict[str, list[list[float]]]:
    """By masking: of every text, of each of its scored tokens. folder: None is the embedded model."""
    with mlmfast.load(folder, engine=engine, precision=precision, device=device) as scorer:
        return {
            masking: [[t.log_prob for t in result.tokens] for result in scorer.score(texts, masking)]
            for masking in maskings
        }
