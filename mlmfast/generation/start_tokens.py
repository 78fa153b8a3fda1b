"""A text to start from as tokens: its masks, what of it is content, where phrases are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlmfast.errors import InputError, SettingsError
from mlmfast.tokenization import Tokenizer, prepare_protein
from mlmfast.types import BoolArray, Int32Array


@dataclass(frozen=True)
class StartTokens:
    """n tokens, those that the tokenizer puts around a text included.

    input_ids int32[n]; token_type_ids int32[n] or None; is_mask bool[n]; is_content bool[n], all but special
    tokens, masks among them; text: as tokenized; char_spans int32[n, 2] in it.
    """

    input_ids: Int32Array
    token_type_ids: Int32Array | None
    is_mask: BoolArray
    is_content: BoolArray
    text: str
    char_spans: Int32Array

    def with_masks(self, num_masks: int) -> StartTokens:
        """These tokens with the last of the content, a mask, `num_masks` times."""
        times = np.ones(len(self.input_ids), dtype=np.int64)
        times[np.flatnonzero(self.is_content)[-1]] = num_masks
        types = self.token_type_ids
        return StartTokens(
            input_ids=np.repeat(self.input_ids, times),
            token_type_ids=None if types is None else np.repeat(types, times),
            is_mask=np.repeat(self.is_mask, times),
            is_content=np.repeat(self.is_content, times),
            text=self.text,
            char_spans=np.repeat(self.char_spans, times, axis=0),
        )

    def of_phrase(self, phrase: str) -> BoolArray:
        """bool[n]: the tokens of all occurrences made of whole tokens. Raises InputError for none."""
        phrase = phrase.strip()
        # Some tokenizers count the white space before a token to it; one that is white space alone may have
        # an empty span.
        gaps = [
            0 if span.isspace() else len(span) - len(span.lstrip())
            for span in (self.text[a:b] for a, b in self.char_spans)
        ]
        begins, ends = self.char_spans[:, 0] + gaps, self.char_spans[:, 1]
        found = np.zeros(len(self.input_ids), dtype=bool)
        at = self.text.find(phrase)
        while at >= 0:
            end = at + len(phrase)
            inside: BoolArray = (begins >= at) & (ends <= end) & self.is_content
            inside &= (begins < ends) | ((begins > at) & (ends < end))
            if (begins[inside] == at).any() and (ends[inside] == end).any():
                found |= inside
            at = self.text.find(phrase, at + 1)
        if not found.any():
            raise InputError(f"the phrase {phrase!r:.60} is not in the text as whole tokens")
        return found


class StartTokenizer:
    """A model's tokenizer for texts in which the mask token is one, and other special tokens are refused."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        assert tokenizer.special.mask_id is not None  # a masked model has one: open_model checks it
        self.mask_id = tokenizer.special.mask_id
        self._tokenizer = tokenizer
        self._mask = tokenizer.vocabulary[self.mask_id]

    def prepared(self, text: str) -> str:
        """The text as it is tokenized."""
        return prepare_protein(text, (self._mask,)).sequence if self._tokenizer.protein else text

    def tokens(self, text: str, *, then_mask: bool = False) -> StartTokens:
        """The tokens of a text, and of a mask behind it if wanted. Raises InputError."""
        if not isinstance(text, str):
            raise InputError(f"expected a string, found {type(text).__name__} {text!r:.40}")
        text = self.prepared(text) + (self._mask if then_mask else "")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(
                f"not valid Unicode: half a surrogate pair at character {error.start + 1}"
            ) from None
        encoded = self._tokenizer.encode([text], parse_special=True)
        is_mask = encoded.input_ids == self.mask_id
        is_content = (encoded.word_ids != -1) | is_mask
        typed = ~is_content & (encoded.char_spans[:, 0] < encoded.char_spans[:, 1])
        if typed.any():
            token = self._tokenizer.vocabulary[encoded.input_ids[typed][0]]
            raise InputError(
                f"{token} is a special token; of these a text to start from may hold {self._mask} alone"
            )
        return StartTokens(
            encoded.input_ids, encoded.token_type_ids, is_mask, is_content, text, encoded.char_spans
        )

    def word(self, word: str) -> Int32Array:
        """int32[k], the tokens of a word inside a text. Raises SettingsError if there are none."""
        # Behind white space, as byte-level and SentencePiece vocabularies have most words.
        encoded = self._tokenizer.encode([f" {self.prepared(word)}"])
        ids: Int32Array = encoded.input_ids[encoded.word_ids != -1]
        if not len(ids):
            raise SettingsError(f"the word {word!r:.40} has no tokens")
        return ids
