"""A Rust tokenizer with what scoring must know of it: special tokens, words, spans, columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from mlmfast.types import Int32Array, TokenizedTexts

UNMATCHABLE = "\U0010fffd"
"""A private-use character; it begins the names that hide special tokens from plain text."""


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of a model's special tokens; None where it has none. `all_ids` does not hold the unknown token."""

    mask_id: int | None
    unknown_id: int | None
    bos_id: int | None
    eos_id: int | None
    pad_id: int | None
    all_ids: frozenset[int]


SPACES = frozenset("\u0120\u2581\u0109\u010a\u010b\u010c\u010d")
"""How byte-level BPE and SentencePiece write a leading space, and byte-level BPE tabs and line breaks."""


class Tokenizer:
    """Encodes texts in bulk; special tokens typed in a text are plain text unless `parse_special`."""

    def __init__(self, definition: str, special: SpecialTokens, *, protein: bool = False) -> None:
        """definition: the JSON of a `tokenizers.Tokenizer`; protein: one letter is one token."""
        self.definition = definition
        self.special = special
        self.protein = protein
        with_specials = tokenizers.Tokenizer.from_str(definition)
        size = with_specials.get_vocab_size(with_added_tokens=True)
        tokens = with_specials.get_vocab(with_added_tokens=True)
        vocabulary = [""] * max(size, max(tokens.values(), default=-1) + 1)
        for token, index in tokens.items():
            vocabulary[index] = token
        self.vocabulary: list[str] = vocabulary

    @cached_property
    def _plain(self) -> tokenizers.Tokenizer:
        backend = _ready(_hide_special_tokens(self.definition, self.special))
        backend.encode_special_tokens = True
        return backend

    @cached_property
    def _parsing(self) -> tokenizers.Tokenizer:
        return _ready(self.definition)

    def encode(
        self, texts: Sequence[str], *, causal: bool = False, parse_special: bool = False
    ) -> TokenizedTexts:
        """Tokens of each text, special tokens included.

        causal: the text is put between the tokenizer's begin- and end-of-sequence tokens, where it has
        them. parse_special: `[MASK]` and the like typed in a text become special tokens.
        """
        backend = self._parsing if parse_special else self._plain
        # In bulk, a single text would go through the tokenizer's threads.
        one = len(texts) == 1
        encodings = [backend.encode(texts[0])] if one else backend.encode_batch(list(texts))
        offsets = np.fromiter(accumulate(map(len, encodings), initial=0), np.int64, len(encodings) + 1)
        num_tokens = int(offsets[-1])

        def column(values: Iterable[Iterable[int]], dtype: type = np.int32) -> NDArray[Any]:
            return np.fromiter(chain.from_iterable(values), dtype, num_tokens)

        input_ids = column(e.ids for e in encodings)
        template = column((e.special_tokens_mask for e in encodings), np.bool_)
        word_ids = column([-1 if w is None else w for w in e.word_ids] for e in encodings)
        if parse_special:
            template |= np.isin(input_ids, sorted(self.special.all_ids))
        word_ids[template] = -1
        bounds = chain.from_iterable(chain.from_iterable(e.offsets for e in encodings))
        spans = np.fromiter(bounds, np.int32, 2 * num_tokens).reshape(-1, 2)
        types = [e.type_ids for e in encodings]
        type_ids = column(types) if any(map(any, types)) else None
        tokenized = TokenizedTexts(input_ids, offsets, type_ids, word_ids, spans)
        return self._between_bos_and_eos(tokenized) if causal else tokenized

    def decode(self, input_ids: Sequence[int] | Int32Array) -> str:
        """The text of tokens: special ones but the mask are left out, a protein's letters are joined."""
        left_out = self.special.all_ids - {self.special.mask_id}
        kept = [int(i) for i in input_ids if int(i) not in left_out]
        if self.protein:
            return "".join(self.vocabulary[i] for i in kept)
        return str(self._parsing.decode(kept, skip_special_tokens=False))

    def _between_bos_and_eos(self, texts: TokenizedTexts) -> TokenizedTexts:
        """Adds the begin- and end-of-sequence tokens that the tokenizer's own template does not add."""
        bos, eos = self.special.bos_id, self.special.eos_id
        starts, ends, lengths = texts.offsets[:-1], texts.offsets[1:], texts.lengths
        prefix = np.full(texts.num_texts, bos is not None)
        suffix = np.full(texts.num_texts, eos is not None)
        filled = np.flatnonzero(lengths > 0)
        template = texts.word_ids == -1
        prefix[filled] &= ~(template & (texts.input_ids == bos))[starts[filled]]
        # A lone template token is the beginning, not also the end (where the two are one token).
        at_end = (template & (texts.input_ids == eos))[ends[filled] - 1]
        suffix[filled] &= ~(at_end & ((lengths[filled] > 1) | (bos != eos)))
        offsets = np.concatenate([[0], np.cumsum(lengths + prefix + suffix)]).astype(np.int64)
        moved = np.arange(len(texts.input_ids)) + np.repeat(offsets[:-1] + prefix - starts, lengths)
        input_ids = np.zeros(offsets[-1], dtype=np.int32)
        word_ids = np.full(offsets[-1], -1, dtype=np.int32)
        char_spans = np.zeros((offsets[-1], 2), dtype=np.int32)
        input_ids[moved], word_ids[moved], char_spans[moved] = (
            texts.input_ids,
            texts.word_ids,
            texts.char_spans,
        )
        if bos is not None:
            input_ids[offsets[:-1][prefix]] = bos
        if eos is not None:
            input_ids[offsets[1:][suffix] - 1] = eos
        return TokenizedTexts(input_ids, offsets, None, word_ids, char_spans)

    @property
    def special_names(self) -> list[str]:
        """The special tokens as they are typed."""
        return [self.vocabulary[i] for i in sorted(self.special.all_ids)]

    @cached_property
    def word_starts(self) -> NDArray[np.uint8] | None:
        """uint8[V], 1 for a token that begins with white space or ends the text, as causal word scores
        need; None if this tokenizer's tokens do not carry their leading space."""
        starts = np.fromiter((token[:1] in SPACES for token in self.vocabulary), dtype=np.uint8)
        if starts.sum() == 0:
            return None
        if self.special.eos_id is not None:
            starts[self.special.eos_id] = 1
        return starts


def _ready(definition: str) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer.from_str(definition)
    backend.no_padding()
    backend.no_truncation()
    return backend


def _hide_special_tokens(definition: str, special: SpecialTokens) -> str:
    """The same tokenizer, unable to produce a special token from its name in a text.

    Special tokens, the unknown one too, keep their ids and get names that no text tokenizes to: in the
    list matched before tokenization, which `encode_special_tokens` further closes to them, and in a
    vocabulary matched as whole strings (Unigram, WordPiece, WordLevel). Templates name them by id.
    """
    tree = json.loads(definition)
    added, model = tree.get("added_tokens") or [], tree["model"]
    hidden = special.all_ids | {t["id"] for t in added if t.get("special")}
    if special.unknown_id is not None:
        hidden |= {special.unknown_id}
    for token in added:
        # Renamed and not removed: those after it would otherwise move up to its id.
        if token["id"] in hidden:
            token.update(content=_hidden_name(token["id"]), special=True)
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, list):
        for index in hidden:
            if index < len(vocabulary):
                vocabulary[index][0] = _hidden_name(index)
    elif isinstance(vocabulary, dict):
        if vocabulary.get(model.get("unk_token")) in hidden:
            model["unk_token"] = _hidden_name(vocabulary[model["unk_token"]])
        model["vocab"] = {(_hidden_name(i) if i in hidden else t): i for t, i in vocabulary.items()}
    return json.dumps(tree, ensure_ascii=False)


def _hidden_name(index: int) -> str:
    # Vocabularies are searched for pieces of words, which hold no space.
    return f"{UNMATCHABLE} {index}"
