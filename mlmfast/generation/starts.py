"""Texts as the beginnings of chains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from mlmfast.errors import InputError, SettingsError, TextTooLongError
from mlmfast.generation.alphabet import allowed_tokens
from mlmfast.generation.models import require_logits_of_masks
from mlmfast.generation.start_settings import StartSettings
from mlmfast.generation.start_tokens import StartTokenizer, StartTokens
from mlmfast.generation.state import StartState
from mlmfast.plans import check_whole
from mlmfast.random_streams import random_stream
from mlmfast.scorer import Scorer
from mlmfast.types import BoolArray, Int32Array, Int64Array


def starts(
    scorer: Scorer,
    texts: Iterable[str],
    settings: StartSettings | None = None,
    *,
    allowed: BoolArray | None = None,
    seed: int = 0,
    first_chain: int = 0,
) -> Iterator[StartState]:
    """The beginning of a chain for each text, in order, as they are asked for; "" with a `length` is a chain
    of masks. A text may hold the model's mask token, whose position is then free.

    allowed: bool[V], what `init="random"` draws from; by default as `allowed_tokens` has it. seed,
    first_chain: chain c draws from its own stream alone, whichever chains are beside it.
    Raises SettingsError for settings that do not fit the model, at once; InputError for a text.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise SettingsError(f"texts is {texts!r:.40}; expected an iterable of strings, such as [text]")
    check_whole("first_chain", first_chain, 0)
    maker = StartMaker(scorer, settings or StartSettings(), allowed=allowed, seed=seed)

    def placed(index: int, text: str) -> StartState:
        try:
            return maker.start(text, first_chain + index)
        except InputError as error:
            raise error.at(where=f"texts[{index}]") from None

    return (placed(index, text) for index, text in enumerate(texts))


class StartMaker:
    """Makes the beginnings of chains of one model."""

    def __init__(
        self, scorer: Scorer, settings: StartSettings, *, allowed: BoolArray | None = None, seed: int = 0
    ) -> None:
        """As for `starts`. Raises SettingsError."""
        require_logits_of_masks(scorer.files)
        check_whole("seed", seed, 0)
        self._settings, self._seed = settings, seed
        self._max_length = scorer.engine.max_length
        self._lengths = settings.length_range()
        self._positions = settings.free_positions()
        self._tokenizer = StartTokenizer(scorer.files.tokenizer)
        self._phrases = [self._tokenizer.prepared(phrase) for phrase in settings.fixed_phrases]
        self._words = [self._tokenizer.word(word) for word in settings.words]
        if allowed is None:
            allowed = allowed_tokens(scorer.files.tokenizer, scorer.files.config.vocab_size)
        self._allowed_ids = np.flatnonzero(allowed)

    def start(self, text: str, chain: int) -> StartState:
        """The beginning of a chain. Raises InputError for a text that is not valid, too long or all fixed."""
        draws = random_stream(self._seed, chain, 1)
        tokens = self._tokenizer.tokens(text, then_mask=self._lengths is not None)
        if self._lengths is not None:
            tokens = tokens.with_masks(self._num_masks(tokens, self._lengths, draws))
        if len(tokens.input_ids) > self._max_length:
            raise TextTooLongError(
                f"{len(tokens.input_ids)} tokens, but the model takes {self._max_length} (special tokens "
                "included)"
            )
        chosen = self._chosen(tokens)
        is_free = self._without_kept(tokens, chosen)
        init = self._settings.init or ("text" if chosen is tokens.is_content else "mask")
        input_ids = self._initial(tokens, is_free, init, draws)
        return StartState(input_ids, is_free, tokens.token_type_ids)

    def _num_masks(self, tokens: StartTokens, lengths: tuple[int, int], draws: np.random.Generator) -> int:
        """How many masks follow a text; tokens: its own and one mask."""
        num_own = int(tokens.is_content.sum()) - 1
        if num_own >= lengths[0]:
            raise InputError(
                f"the text has {num_own} tokens already, and the length is {self._settings.length}; make it "
                "longer"
            )
        return int(draws.integers(*lengths, endpoint=True)) - num_own

    def _chosen(self, tokens: StartTokens) -> BoolArray:
        """bool[n]: masks and positions, or without these the whole content."""
        content = np.flatnonzero(tokens.is_content)
        if len(self._positions) and self._positions[-1] >= len(content):
            raise InputError(
                f"positions go to {self._positions[-1] + 1}, but the text has {len(content)} tokens"
            )
        chosen = tokens.is_mask.copy()
        chosen[content[self._positions]] = True
        return chosen if chosen.any() else tokens.is_content

    def _without_kept(self, tokens: StartTokens, chosen: BoolArray) -> BoolArray:
        """bool[n]: what is free of the chosen tokens once leader and phrases are kept."""
        kept = np.zeros(len(chosen), dtype=bool)
        kept[np.flatnonzero(tokens.is_content)[: self._settings.leader]] = True
        for phrase in self._phrases:
            kept |= tokens.of_phrase(phrase)
        if (kept & tokens.is_mask).any():
            raise InputError("a mask is among the tokens to be kept, where nothing would ever fill it")
        is_free: BoolArray = chosen & ~kept
        if not chosen.any():
            raise InputError("the text has no tokens; give one that has some, or a length")
        if not is_free.any():
            raise InputError("no token is free: all of the text is kept; free some, or give a length")
        return is_free

    def _initial(
        self, tokens: StartTokens, is_free: BoolArray, init: str, draws: np.random.Generator
    ) -> Int32Array:
        """int32[n], the tokens of the start."""
        input_ids: Int32Array = tokens.input_ids.copy()
        free = np.flatnonzero(is_free)
        if init == "mask":
            input_ids[free] = self._tokenizer.mask_id
        elif init == "random":
            input_ids[free] = draws.choice(self._allowed_ids, size=len(free))
        if self._words:
            self._mix_in(input_ids, free, draws)
        return input_ids

    def _mix_in(self, input_ids: Int32Array, free: Int64Array, draws: np.random.Generator) -> None:
        """Puts every word at free positions, its tokens one behind the other, at random."""
        num_left = len(free) - sum(len(word) for word in self._words)
        if num_left < 0:
            raise InputError(
                f"free tokens: {len(free)}, tokens of the words: {len(free) - num_left}; give fewer words"
            )
        at = 0
        for item in draws.permutation(len(self._words) + num_left):
            if item < len(self._words):
                word = self._words[item]
                input_ids[free[at : at + len(word)]] = word
                at += len(word)
            else:
                at += 1
