"""What students are judged on: held-out texts, minimal pairs, n-best lists."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from texts import read_pairs

from mlmfast.errors import InputError
from mlmfast.io import read_records
from mlmfast.rescoring import NBestList, TextPreparation, read_lists
from mlmfast.tokenization import Tokenizer
from mlmfast.types import Int64Array

JOINED = re.compile(r" @(.)@ ")
"""How WikiText writes a character between two halves of a word."""
PREPARATION = TextPreparation(capitalize="first", append_period=True)
"""Of hypotheses, as recognisers write no sentences."""


@dataclass(frozen=True)
class Part:
    """Texts in G groups, each scored together as its texts may share rows."""

    name: str
    groups: tuple[tuple[str, ...], ...]

    @property
    def texts(self) -> list[str]:
        return [text for group in self.groups for text in group]

    @property
    def offsets(self) -> Int64Array:
        """int64[G+1], where each group's texts are."""
        return np.cumsum([0, *(len(group) for group in self.groups)])


@dataclass(frozen=True)
class Material:
    """texts: of one text a group. pairs: acceptable before unacceptable. nbest: the lists of `lists`."""

    texts: tuple[Part, ...] = ()
    pairs: Part | None = None
    lists: Part | None = None
    nbest: tuple[NBestList, ...] = field(default=(), repr=False)

    @property
    def parts(self) -> tuple[Part, ...]:
        return (*self.texts, *(part for part in (self.pairs, self.lists) if part is not None))


@dataclass(frozen=True)
class Sample:
    """Of a file's texts: so many, drawn by a seed, of least to most tokens (special ones not counted)."""

    number: int
    least_tokens: int
    most_tokens: int
    seed: int


def read_material(
    texts: Sequence[str],
    blimp: Path | None,
    lists: Path | None,
    *,
    sample: Sample,
    pairs_per_paradigm: int,
    tokenizer: Tokenizer,
) -> Material:
    """texts: files, each `FILE`, or `FILE@N` for its last N lines. Raises SystemExit, InputError."""
    nbest = () if lists is None else tuple(checked_list(item) for item in read_lists(lists))
    return Material(
        texts=tuple(text_part(named, sample, tokenizer) for named in texts),
        pairs=None if blimp is None else pair_part(blimp, pairs_per_paradigm),
        lists=None if lists is None else list_part(lists.name, nbest),
        nbest=nbest,
    )


def text_part(named: str, sample: Sample, tokenizer: Tokenizer) -> Part:
    """A sample of a file's different texts, in the order of the file."""
    path, _, last = named.partition("@")
    lines = [record.text.strip() for record in read_records(path) if record.text]
    if last:
        lines = lines[-int(last) :]
    found = list(dict.fromkeys(JOINED.sub(r"\1", line) for line in lines if line))
    encoded = tokenizer.encode(found)
    lengths = np.add.reduceat(encoded.word_ids >= 0, encoded.offsets[:-1])
    fitting = np.flatnonzero((lengths >= sample.least_tokens) & (lengths <= sample.most_tokens))
    if len(fitting) < 2:
        raise SystemExit(
            f"{named}: {len(fitting)} texts of {sample.least_tokens} to {sample.most_tokens} tokens; "
            "correlations need at least 2"
        )
    chosen = sorted(random.Random(sample.seed).sample(fitting.tolist(), min(sample.number, len(fitting))))
    name = Path(path).name.split(".txt")[0] + (f", of the last {last} lines" if last else "")
    return Part(name, tuple((found[index],) for index in chosen))


def pair_part(path: Path, per_paradigm: int) -> Part:
    """The first pairs of each paradigm of a file, or of pairs.jsonl.gz in a folder."""
    seen: dict[str, int] = {}
    groups = []
    for pair in read_pairs(path / "pairs.jsonl.gz" if path.is_dir() else path):
        seen[pair["paradigm"]] = seen.get(pair["paradigm"], 0) + 1
        if seen[pair["paradigm"]] <= per_paradigm:
            groups.append((pair["good"], pair["bad"]))
    return Part("BLiMP", tuple(groups))


def list_part(name: str, nbest: Sequence[NBestList]) -> Part:
    """The hypotheses as they are scored."""
    groups = (tuple(PREPARATION(hypothesis.text) for hypothesis in item.hypotheses) for item in nbest)
    return Part(name, tuple(groups))


def checked_list(item: NBestList | InputError) -> NBestList:
    if isinstance(item, InputError):
        raise item
    return item
