"""Log-probabilities by an engine, as a worker gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mlmfast


def log_probs(
    folder: str | None,
    texts: Mapping[str, Sequence[str]],
    *,
    engine: str,
    precision: str,
    device: str,
) -> dict[str, list[list[float]]]:
    """By masking, as the texts are: of every text, of each of its scored tokens. folder: None is the embedded
    model."""
    with mlmfast.load(folder, engine=engine, precision=precision, device=device) as scorer:
        return {
            masking: [[t.log_prob for t in result.tokens] for result in scorer.score(those, masking)]
            for masking, those in texts.items()
        }
