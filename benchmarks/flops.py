"""The floating-point operations that the exact work takes, the same numerator for every contestant."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

KINDS = ("bert", "roberta", "xlm-roberta", "camembert")


@dataclass(frozen=True)
class EncoderSize:
    """Sizes of a BERT-like masked LM."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int

    @classmethod
    def of(cls, folder: Path) -> EncoderSize:
        """Read from config.json. Raises SystemExit for a model that row_flops does not describe."""
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if config["model_type"] not in KINDS:
            raise SystemExit(
                f"{folder}: a {config['model_type']} model; FLOPs are known of {', '.join(KINDS)}"
            )
        return cls(
            num_layers=config["num_hidden_layers"],
            hidden_size=config["hidden_size"],
            intermediate_size=config["intermediate_size"],
            vocab_size=config["vocab_size"],
        )

    def row_flops(self, length: int) -> int:
        """Of one row of `length` tokens with one target, a multiplication and an addition being two.

        With n tokens, N layers, hidden size H, intermediate size I and vocabulary V:
        N (2 n (4 H^2 + 2 H I) + 4 n^2 H) + 2 H^2 + 2 H V: the products with weights of every layer at every
        token, the two of attention, the head's transform and its decoder at the target. Nothing else is
        counted, nor is work that a contestant saves or wastes: who shares or skips work gets a higher rate.
        """
        hidden = self.hidden_size
        weights = 4 * hidden**2 + 2 * hidden * self.intermediate_size
        layer = 2 * length * weights + 4 * length**2 * hidden
        return self.num_layers * layer + 2 * hidden**2 + 2 * hidden * self.vocab_size

    def text_flops(self, num_scored: Iterable[int], num_special: int = 2) -> int:
        """Of all rows of texts with so many scored tokens: one row for each of them."""
        return sum(n * self.row_flops(n + num_special) for n in num_scored)
