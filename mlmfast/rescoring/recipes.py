"""Named recipes that make hypothesis and reference alike before they are compared."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from mlmfast.errors import SettingsError

BRACKETED = re.compile(r"[<\[][^>\]]*[>\]]")
PARENTHESISED = re.compile(r"\(([^)]+?)\)")


class CategoryTable(dict[int, str]):
    """For str.translate: the characters of some Unicode general categories become spaces."""

    def __init__(self, categories: str) -> None:
        self._categories = categories

    def __missing__(self, code: int) -> str:
        character = chr(code)
        value = " " if unicodedata.category(character)[0] in self._categories else character
        self[code] = value
        return value


PUNCTUATION = CategoryTable("P")
MARKS_SYMBOLS_PUNCTUATION = CategoryTable("MSP")


def one_space(text: str) -> str:
    return " ".join(text.split())


def strip_punctuation(text: str) -> str:
    """Punctuation (Unicode P*) at the ends of white-space words is dropped, and words that are nothing else;
    an apostrophe, hyphen or point inside a word stays."""
    words = (strip_word(word) for word in text.split())
    return " ".join(word for word in words if word)


def strip_word(word: str) -> str:
    if word.isalnum():
        return word
    bare = word.translate(PUNCTUATION)
    return word[len(bare) - len(bare.lstrip()) : len(bare.rstrip())]


def lowercase(text: str) -> str:
    return one_space(text.lower())


def lowercase_without_punctuation(text: str) -> str:
    return strip_punctuation(text.lower())


def whisper_basic(text: str) -> str:
    """Lower case without text in brackets, then NFKC with marks, symbols and punctuation as spaces (the
    basic normaliser of Radford et al. 2022, appendix C)."""
    text = PARENTHESISED.sub("", BRACKETED.sub("", text.lower()))
    return one_space(unicodedata.normalize("NFKC", text).translate(MARKS_SYMBOLS_PUNCTUATION))


Recipe = Callable[[str], str]

RECIPES: dict[str, Recipe] = {
    "none": one_space,
    "lowercase": lowercase,
    "strip-punctuation": strip_punctuation,
    "lowercase-strip-punctuation": lowercase_without_punctuation,
    "whisper-basic": whisper_basic,
}
"""All of them also turn white space into single spaces, none at the ends."""


def recipe_named(name: str) -> Recipe:
    """Raises SettingsError for an unknown name."""
    try:
        return RECIPES[name]
    except KeyError as error:
        raise SettingsError(f"unknown recipe {name!r}; expected one of {', '.join(RECIPES)}") from error
