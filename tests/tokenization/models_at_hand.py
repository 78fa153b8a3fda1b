"""The tokenizers of the test models, and texts that are hard on them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st

from mlmfast.tokenization import Tokenizer, load_tokenizer

MODELS = Path(__file__).parents[1] / "data" / "models"
ALL = tuple(sorted(folder.name for folder in MODELS.iterdir()))
WITH_JSON = tuple(name for name in ALL if (MODELS / name / "tokenizer.json").is_file())
FAMILIES = (
    *("bert", "bert-no-mask-token", "mpnet", "roberta", "modernbert", "gpt2", "llama"),
    *("albert", "xlm-roberta", "camembert", "deberta-v2", "sapiens-vh"),
)
"""One of each kind of tokenizer.json; the other folders hold copies of bert's, electra's or deberta's."""


MANY = settings(deadline=None, max_examples=30)
"""Loading a tokenizer counts in the first example's time."""


@cache
def tokenizer_of(name: str) -> Tokenizer:
    return load_from(MODELS / name)


def load_from(folder: Path) -> Tokenizer:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return load_tokenizer(folder, config["model_type"])


def special_strings(name: str) -> list[str]:
    """The special tokens of a model, the unknown token among them."""
    tokenizer = tokenizer_of(name)
    unknown = tokenizer.special.unknown_id
    ids = tokenizer.special.all_ids | (set() if unknown is None else {unknown})
    return [tokenizer.vocabulary[i] for i in sorted(ids)]


EVERY_SPECIAL = sorted({token for name in ALL for token in special_strings(name)})

PIECES = st.one_of(
    st.sampled_from(EVERY_SPECIAL),
    st.sampled_from(["people", "The", "naïve", "e\u0301te\u0301", "don't", "Congress,", "ﬁne", "½", "ǅ"]),
    st.sampled_from(["日本語", "中", "ありがとう", "สวัสดี", "👩‍👧", "🇫🇷", "Ω", "ß", "İ", "한국어", "ى"]),
    st.sampled_from(["\0", "\x1f", "\u200b", "\ufeff", "\ufffd", "\U0010fffd", "\U0010fffd 2", "\ue000"]),
    st.sampled_from([" ", "  ", "    ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u2028", "\x85", "▁", "Ġ"]),
    st.text(max_size=4),
)
TEXTS = st.lists(PIECES, max_size=10).map("".join)
