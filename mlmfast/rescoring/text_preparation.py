"""What is done to a hypothesis before a language model scores it; the text written out stays as it was."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from mlmfast.errors import InputError, SettingsError
from mlmfast.extras import require
from mlmfast.io.lines import Source, decode, open_input, physical_lines, without_line_end
from mlmfast.rescoring.recipes import one_space, strip_punctuation

SUBWORD_END = re.compile(r"@@(?:\s+|$)")
CAPITALIZE = (None, "first", "python")
# Known to Moses' detokeniser by their script, beside those that it has lists of abbreviations for.
CJK_LANGUAGES = ("ja", "ko")


@dataclass(frozen=True)
class TextPreparation:
    """Applied in this order, each only if asked for:

    join_bpe: subwords that end with `@@` joined to what follows (the marks of subword-nmt). word_map:
    white-space words replaced ("" drops one). detok: Moses detokenisation for a language (`en`, ...),
    entities such as `&apos;` unescaped. strip_punct: punctuation at the ends of words dropped. lowercase.
    capitalize: `first` makes the first letter a capital, `python` is str.capitalize, which lower-cases the
    rest (as mlm-scoring does). append_period: a full stop unless the text ends in one of
    `.!?` (mlm-scoring's --eos adds it always).
    White space becomes single spaces; a text that ends up empty stays empty.
    Raises SettingsError for an unknown choice or language, MissingExtraError for `detok` without the `nbest`
    extra.
    """

    join_bpe: bool = False
    word_map: Mapping[str, str] = field(default_factory=dict)
    detok: str | None = None
    strip_punct: bool = False
    lowercase: bool = False
    capitalize: Literal["first", "python"] | None = None
    append_period: bool = False

    def __post_init__(self) -> None:
        if self.capitalize not in CAPITALIZE:
            raise SettingsError(f"unknown capitalize={self.capitalize!r}; expected first or python")
        if self.detok is not None:
            check_language(self.detok)

    def __call__(self, text: str) -> str:
        """The text to score."""
        if self.join_bpe:
            text = SUBWORD_END.sub("", text)
        if self.word_map:
            text = " ".join(self.word_map.get(word, word) for word in text.split())
        if self.detok is not None:
            text = self._detokenizer.detokenize(text.split())
        text = strip_punctuation(text) if self.strip_punct else one_space(text)
        if self.lowercase:
            text = text.lower()
        if self.capitalize == "first":
            text = capitalize_first(text)
        elif self.capitalize == "python":
            text = text.capitalize()
        if self.append_period and text and text[-1] not in ".!?":
            text += "."
        return text

    @cached_property
    def _detokenizer(self) -> Any:
        return sacremoses().MosesDetokenizer(lang=self.detok)

    def settings(self) -> dict[str, Any]:
        """What to compare two runs by; the map as a checksum."""
        settings = asdict(self)
        words = sorted(settings.pop("word_map").items())
        digest = hashlib.sha256(repr(words).encode("utf-8")).hexdigest() if words else None
        return {**settings, "word_map_sha256": digest}


def sacremoses() -> Any:
    return require("sacremoses", extra="nbest", purpose="detokenisation")


def check_language(language: str) -> None:
    """Raises SettingsError for a code that Moses does not know; it would take any without a word."""
    known = {*sacremoses().corpus.NonbreakingPrefixes().available_langs.values(), *CJK_LANGUAGES}
    if language not in known:
        raise SettingsError(
            f"no detokenisation for language {language!r}; expected one of {', '.join(sorted(known))}; "
            "en does for those that set punctuation as English does"
        )


def capitalize_first(text: str) -> str:
    """The first letter or digit's title case; what comes before it (a quote, a bracket) is passed over."""
    for place, character in enumerate(text):
        if character.isalnum():
            return text[:place] + character.title() + text[place + 1 :]
    return text


def read_word_map(source: Source) -> dict[str, str]:
    """A map from lines of WORD<TAB>REPLACEMENT; the replacement may be empty or several words.

    Raises InputError, placed, for a line without a tab, a first column that is not one word, or a word named
    twice. Blank lines are passed over.
    """
    word_map: dict[str, str] = {}
    with open_input(source) as stream:
        for number, raw in enumerate(physical_lines(stream), start=1):
            line = decode(without_line_end(raw), number)
            if not line.strip():
                continue
            word, tab, replacement = line.partition("\t")
            word = one_space(word)
            if not tab or not word or " " in word:
                raise InputError(f"expected WORD<TAB>REPLACEMENT, got {line!r}", line=number)
            if word in word_map:
                raise InputError(f"the word {word!r} is mapped twice; keep one line", line=number)
            word_map[word] = one_space(replacement)
    return word_map
