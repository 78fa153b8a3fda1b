"""A wild type as a model reads it: its tokens, the window each residue is scored in, its changed rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mlmfast.errors import InputError, TextTooLongError
from mlmfast.proteins.mutations import RESIDUES, Variant
from mlmfast.scheduling import window
from mlmfast.scheduling.segments import room
from mlmfast.tokenization import Tokenizer, prepare_protein
from mlmfast.types import Int32Array, Int64Array, TokenizedTexts

OVERLONG = ("error", "window")


class Row(NamedTuple):
    """A sequence to forward, as what makes it differ from a window of the wild type.

    window: which one; changed: (position, letter) of the residues exchanged; masked: positions; both
    ascending and inside the window, and no position in both, so that equal sequences are equal rows.
    """

    window: int
    changed: tuple[tuple[int, str], ...]
    masked: tuple[int, ...]


@dataclass(frozen=True)
class Protein:
    """A wild type of L residues, cut into W windows of tokens: one where the model takes it whole.

    window_texts: the windows with their special tokens. window_of int64[L]: the window in which a residue is
    scored. starts, ends int64[W]: the residues of a window; places int64[W]: the token of its first one.
    letters: those with a column of log-probabilities, the twenty amino acids first; letter_ids int32[A].
    """

    sequence: str
    window_texts: TokenizedTexts
    window_of: Int64Array
    starts: Int64Array
    ends: Int64Array
    places: Int64Array
    letters: str
    letter_ids: Int32Array
    mask_id: int

    def row(self, position: int, *, changed: Variant = (), masked: Iterable[int] = ()) -> Row:
        """The row that scores a residue when the mutations `changed` are made and the positions `masked`,
        ascending, are masked. What lies outside its window has no part in it."""
        number = int(self.window_of[position])
        inside = range(self.starts[number], self.ends[number])
        hidden = tuple(p for p in masked if p in inside)
        letters = tuple(
            (m.position, m.mutant)
            for m in changed
            if m.mutant != m.wild_type and m.position in inside and m.position not in hidden
        )
        return Row(number, letters, hidden)

    def token_of(self, number: int, position: int) -> int:
        """Where a residue is in a window, in tokens."""
        return int(position - self.starts[number] + self.places[number])


def prepare_wild_type(sequence: str) -> str:
    """The wild type's letters: white space and a `*` at the end are dropped, lower case becomes upper.

    Raises InputError for a sequence without residues or with what is not a letter.
    """
    letters = prepare_protein(sequence).sequence
    if not letters:
        raise InputError("the wild type has no residues")
    for place, letter in enumerate(letters):
        if not ("A" <= letter <= "Z"):
            raise InputError(f"residue {place + 1} of the wild type is {letter!r}; expected a letter, A to Z")
    return letters


def protein_of(sequence: str, tokenizer: Tokenizer, max_length: int, overlong: str = "error") -> Protein:
    """The wild type, as `prepare_wild_type` gives it, for a model that takes max_length tokens.

    overlong: for a longer one, `error`, or `window`: half-overlapping windows, each residue scored in the one
    where it is most central, as `mlmfast score --overlong window` does. Raises TextTooLongError.
    """
    texts = tokenizer.encode([sequence])
    residues = np.flatnonzero(texts.word_ids != -1)
    if len(residues) != len(sequence):
        raise InputError(f"the wild type's {len(sequence)} residues are {len(residues)} tokens of this model")
    num_tokens = len(texts.input_ids)
    if num_tokens > max_length and overlong == "error":
        raise TextTooLongError(
            f"the wild type is {num_tokens} tokens long, but the model takes {max_length} (special tokens "
            "included); use overlong='window' (--overlong)"
        )
    if room(texts, 0, max_length) < 1:
        raise TextTooLongError(f"the model takes {max_length} tokens, too few for any protein")
    slots = np.full(num_tokens, -1)
    slots[residues] = np.arange(len(sequence))
    segments = window(texts, slots, max_length)
    return Protein(
        sequence, segments.texts, *_spans(segments.texts, segments.slots), *_columns(sequence, tokenizer)
    )


def _spans(texts: TokenizedTexts, slots: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """window_of, starts, ends and places of a Protein. slots: the residue a token answers for, or -1."""
    number = np.repeat(np.arange(texts.num_texts), texts.lengths)
    answering = np.flatnonzero(slots >= 0)
    window_of = np.zeros(len(answering), dtype=np.int64)
    window_of[slots[answering]] = number[answering]
    ordinary = texts.word_ids != -1
    sizes = np.bincount(number[ordinary], minlength=texts.num_texts)
    first = np.array(
        [np.flatnonzero(ordinary[a:b])[0] for a, b in zip(texts.offsets, texts.offsets[1:], strict=False)]
    )
    _, one_of_each = np.unique(number[answering], return_index=True)
    some = answering[one_of_each]
    starts = slots[some] - (some - texts.offsets[:-1] - first)
    return window_of, starts, starts + sizes, first


def _columns(sequence: str, tokenizer: Tokenizer) -> tuple[str, Int32Array, int]:
    """letters, letter_ids and mask_id of a Protein."""
    letters = RESIDUES + "".join(sorted(set(sequence) - set(RESIDUES)))
    texts = tokenizer.encode([letters])
    mask_id = tokenizer.special.mask_id
    assert mask_id is not None  # a masked model has one: open_model checks it
    return letters, texts.input_ids[texts.word_ids != -1], mask_id
