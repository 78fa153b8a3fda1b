"""What the peers share: masked copies of texts, batched as a careful user of a library batches them.

Needs numpy and tokenizers only, which every peer's virtual environment has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Score = Callable[[Sequence[str]], list[list[float]]]
"""Log-probabilities per text and token; special tokens are left out."""


class UnavailableError(Exception):
    """A contestant cannot run here; the message is the reason that the table gives."""


@dataclass(frozen=True)
class Batch:
    """Masked copies of one length, so that none is padded.

    input_ids [b, length]; positions [b] of the masks; target_ids [b], what stood there; slots [b], where the
    results go.
    """

    input_ids: Int64
    positions: Int64
    target_ids: Int64
    slots: Int64


Forward = Callable[[Batch], NDArray[Any]]
"""A batch to its targets' log-probabilities [b]."""


def read_tokenizer(folder: str) -> tuple[tokenizers.Tokenizer, int]:
    """A model folder's tokenizer, and the id of its mask token."""
    tokenizer = tokenizers.Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    settings = json.loads((Path(folder) / "tokenizer_config.json").read_text(encoding="utf-8"))
    mask = settings["mask_token"]
    mask_id = tokenizer.token_to_id(mask if isinstance(mask, str) else mask["content"])
    if mask_id is None:
        raise UnavailableError(f"{folder}: no mask token {mask!r} in tokenizer.json")
    return tokenizer, mask_id


def batches(texts: Sequence[tokenizers.Encoding], mask_id: int, max_batch_tokens: int) -> Iterator[Batch]:
    """The copies of all texts, one per token that is not special, shortest first; one length in a batch."""
    ids = [np.array(text.ids, dtype=np.int64) for text in texts]
    targets = [np.flatnonzero(np.array(text.special_tokens_mask) == 0) for text in texts]
    first_slots = np.cumsum([0, *map(len, targets)])
    of_length: dict[int, list[int]] = {}
    for index, text_ids in enumerate(ids):
        of_length.setdefault(len(text_ids), []).append(index)
    for length, indices in sorted(of_length.items()):
        positions = np.concatenate([targets[i] for i in indices])
        slots = np.concatenate([first_slots[i] + np.arange(len(targets[i])) for i in indices])
        text_of_row = np.repeat(indices, [len(targets[i]) for i in indices])
        num_rows = max(1, max_batch_tokens // length)
        for start in range(0, len(positions), num_rows):
            part = slice(start, start + num_rows)
            input_ids = np.stack([ids[i] for i in text_of_row[part]])
            rows = np.arange(len(input_ids))
            target_ids = input_ids[rows, positions[part]]
            input_ids[rows, positions[part]] = mask_id
            yield Batch(input_ids, positions[part], target_ids, slots[part])


def gathered_scorer(folder: str, forward: Forward, max_batch_tokens: int) -> Score:
    """Scores texts by masked copies in batches of one length, of at most max_batch_tokens tokens."""
    tokenizer, mask_id = read_tokenizer(folder)

    def score(texts: Sequence[str]) -> list[list[float]]:
        encoded = tokenizer.encode_batch(list(texts))
        lengths = [len(text.ids) - sum(text.special_tokens_mask) for text in encoded]
        log_probs = np.zeros(sum(lengths))
        for batch in batches(encoded, mask_id, max_batch_tokens):
            log_probs[batch.slots] = forward(batch)
        ends = np.cumsum(lengths)
        return [log_probs[end - length : end].tolist() for end, length in zip(ends, lengths, strict=True)]

    return score
