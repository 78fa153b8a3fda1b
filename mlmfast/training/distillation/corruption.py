"""Texts made worse, so that a student also learns what it will score: errors of recognisers and writers."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from mlmfast.errors import SettingsError

PUNCTUATION = re.compile(r"[^\w\s'’-]+")
SPOKEN_SHARE = 0.4
"""Of the corrupted texts: written as recognisers write, lower-cased and without punctuation."""
RATES = (0.05, 0.35)
"""Of a text's words, changed by the kinds that change words one at a time; drawn for each text."""
SCRAMBLED_SPAN = 6
"""Words that are shuffled among themselves, at most."""
ENDINGS = ("s", "es", "ed", "d", "ing", "er", "ly", "n")
CLOSED_CLASSES = (
    "is are was were be been am",
    "has have had",
    "do does did",
    "can could will would should may might must",
    "himself herself itself themselves myself yourself",
    "he she it they we you i",
    "him her them us me",
    "his her its their our my your",
    "this these that those",
    "who whom which what whose that",
    "a an the",
    "some any no every each many few",
    "never ever always often",
    "in on at by with from of to for about into",
    "and or but nor so",
    "there it",
)
"""Words that stand for one another in minimal pairs."""

Words = list[str]


def corrupted_texts(texts: Sequence[str], variants: int, seed: int = 0) -> list[str]:
    """`variants` corrupted copies of every text: copy j of text i at i * variants + j.

    Each copy is corrupted in one way: words replaced by ones of this corpus that sound alike, dropped and
    inserted (recognisers); replaced by any words of the corpus, as frequent as there; replaced by ones of
    their closed class or given another ending (minimal pairs); a span shuffled or a word moved. A copy
    depends on seed, its place and the corpus alone. Raises SettingsError for fewer variants than 0.
    """
    if variants < 0:
        raise SettingsError(f"variants is {variants}; expected 0 or more")
    lexicon = _Lexicon(texts)
    return [
        _corrupted(text, lexicon, np.random.default_rng([seed, index, variant]))
        for index, text in enumerate(texts)
        for variant in range(variants)
    ]


class _Lexicon:
    """The corpus's words, lower-cased, as replacements."""

    def __init__(self, texts: Sequence[str]) -> None:
        counts = Counter(word for text in texts for word in _bare(text).split())
        self._words = list(counts)
        self._cumulative = np.cumsum(np.array(list(counts.values()), dtype=np.float64))
        self._forms = set(counts)
        self._alike: dict[str, Words] = defaultdict(list)
        for word in self._words:
            self._alike[_sound(word)].append(word)
        self._classes: dict[str, Words] = defaultdict(list)
        for members in (line.split() for line in CLOSED_CLASSES):
            for word in members:
                self._classes[word] += [other for other in members if other != word]

    def frequent(self, word: str, choose: np.random.Generator) -> str:
        """Any word, as likely as it is frequent; `word` itself where the corpus has none."""
        if not self._words:
            return word
        place = np.searchsorted(self._cumulative, choose.random() * self._cumulative[-1], side="right")
        return self._words[int(place)]

    def alike(self, word: str, choose: np.random.Generator) -> str:
        """One that sounds alike, else a frequent one."""
        found = [other for other in self._alike.get(_sound(word), ()) if other != word]
        return found[choose.integers(len(found))] if found else self.frequent(word, choose)

    def related(self, word: str, choose: np.random.Generator) -> str:
        """One of its closed class or with another ending; `word` itself where there is none."""
        stems = [word] + [word[: -len(e)] for e in ENDINGS if word.endswith(e) and len(word) > len(e) + 2]
        forms = {stem + ending for stem in stems for ending in ("", *ENDINGS)}
        found = self._classes.get(word) or sorted((forms & self._forms) - {word})
        return found[choose.integers(len(found))] if found else word


def _corrupted(text: str, lexicon: _Lexicon, choose: np.random.Generator) -> str:
    words = (_bare(text) if choose.random() < SPOKEN_SHARE else text).split()
    if not words:
        return text
    kind = KINDS[choose.integers(len(KINDS))]
    return " ".join(kind(words, lexicon, choose))


def _misheard(words: Words, lexicon: _Lexicon, choose: np.random.Generator) -> Words:
    heard = []
    rate = choose.uniform(*RATES)
    for word in words:
        if choose.random() >= rate:
            heard.append(word)
            continue
        event = choose.random()
        if event < 0.15:
            continue  # not heard
        if event < 0.3:
            heard.append(lexicon.frequent(word, choose))
            heard.append(word)
        else:
            heard.append(_replaced(word, lexicon.alike, choose))
    return heard or words


def _replaced_by_any(words: Words, lexicon: _Lexicon, choose: np.random.Generator) -> Words:
    rate = choose.uniform(*RATES)
    return [_replaced(w, lexicon.frequent, choose) if choose.random() < rate else w for w in words]


def _replaced_by_related(words: Words, lexicon: _Lexicon, choose: np.random.Generator) -> Words:
    """One or two words, where there are such."""
    places = [i for i, w in enumerate(words) if _replaced(w, lexicon.related, choose) != w]
    changed = list(words)
    for place in choose.permutation(places)[: choose.integers(1, 3)]:
        changed[place] = _replaced(words[place], lexicon.related, choose)
    return changed


def _scrambled(words: Words, lexicon: _Lexicon, choose: np.random.Generator) -> Words:
    if choose.random() < 0.5:
        rest = list(words)
        moved = rest.pop(choose.integers(len(rest)))
        rest.insert(choose.integers(len(rest) + 1), moved)
        return rest
    start = choose.integers(len(words))
    end = start + SCRAMBLED_SPAN
    span = [words[i] for i in start + choose.permutation(len(words[start:end]))]
    return words[:start] + span + words[end:]


KINDS: tuple[Callable[[Words, _Lexicon, np.random.Generator], Words], ...] = (
    _misheard,
    _misheard,
    _replaced_by_any,
    _replaced_by_related,
    _scrambled,
)


def _replaced(
    word: str, replacement: Callable[[str, np.random.Generator], str], choose: np.random.Generator
) -> str:
    """The word with its letters replaced, capital and punctuation kept."""
    bare = _bare(word).strip()
    start = word.lower().find(bare)
    if not bare or " " in bare or start < 0:
        return word
    new = replacement(bare, choose)
    new = new.capitalize() if word[start].isupper() else new
    return word[:start] + new + word[start + len(bare) :]


def _bare(text: str) -> str:
    """As recognisers write."""
    return PUNCTUATION.sub(" ", text.lower())


def _sound(word: str) -> str:
    """The consonants, doubled ones once, after the first letter: what words that are misheard share."""
    consonants = re.sub(r"[aeiouyhw'’-]", "", word[1:])
    return word[:1] + re.sub(r"(.)\1+", r"\1", consonants)
