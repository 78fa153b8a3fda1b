"""The mean log-likelihood per residue of an antibody model, by plain loops over rows in float64."""

from __future__ import annotations

import pytest
from plain_variants import MASK, log_prob
from tiny_models import DATA, MODELS, tiny_scorer

SEQUENCE = (DATA / "proteins" / "heavy_chain.fasta").read_text().split()[1][:50]
EVERYWHERE = range(len(SEQUENCE))


@pytest.mark.parametrize(
    ("masking", "rows"),
    [
        ("original", [{i} for i in EVERYWHERE]),
        ("stride:8", [set(EVERYWHERE[first::8]) for first in range(8)]),
        ("stride:50", [{i} for i in EVERYWHERE]),
        ("none", [set()]),
    ],
)
def test_mean_log_likelihood_of_a_heavy_chain(masking: str, rows: list[set[int]]) -> None:
    """rows: the residues that each masks, and that are scored in it; all in a row without masks."""
    folder = MODELS / "sapiens-vh"
    terms = []
    for masked in rows:
        letters = tuple(MASK if i in masked else letter for i, letter in enumerate(SEQUENCE))
        terms += [log_prob(folder, letters, i, SEQUENCE[i]) for i in masked or EVERYWHERE]
    assert len(terms) == len(SEQUENCE)
    [found] = tiny_scorer("sapiens-vh", engine="native").score([SEQUENCE], masking)
    assert found.score / found.num_tokens == pytest.approx(sum(terms) / len(terms), abs=1e-5)
