"""HTK's standard lattice format (HTK Book, chapter 20), read as n-best lists.

A lattice is a file, plain or .gz; its total is acscale * a + lmscale * l + prscale * r + wdpenalty for each
link into a node whose word is not !NULL, with the scales of its header.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mlmfast.errors import InputError
from mlmfast.io.lines import Source, open_file
from mlmfast.rescoring.formats.base import (
    Format,
    Item,
    ReadOptions,
    files_of,
    number,
    parsed_lines,
    stem,
)
from mlmfast.rescoring.formats.lattice import NULL, Lattice, Link, best_sentences
from mlmfast.rescoring.lists import Hypothesis, NBestList

SUFFIXES = (".lat", ".slf", ".htk")
DEFAULT_NBEST = 100
FIELD = re.compile(r'([^\s=]+)=("(?:\\.|[^"\\])*"|\S*)')
ESCAPE = re.compile(r"\\([0-7]{3}|.)")
LONG_NAMES = {
    "NODES": "N",
    "LINKS": "L",
    "START": "S",
    "END": "E",
    "WORD": "W",
    "acoustic": "a",
    "language": "l",
}
Fields = dict[str, str]


@dataclass
class Definition:
    """The lines of a lattice file, sorted by kind."""

    header: Fields = field(default_factory=dict)
    nodes: dict[str, Fields] = field(default_factory=dict)
    links: dict[str, Fields] = field(default_factory=dict)


def read(source: Source, options: ReadOptions) -> Iterator[Item]:
    """One list per lattice, id its file's name without .gz, .lat, .slf and .htk.

    The list has the `nbest` (100) best distinct texts, found exactly; <s>, </s>, !NULL and the like are not
    part of a text. lm_scale takes the place of the header's lmscale. A lattice that cannot be read gives
    an empty list after its error.
    """
    for path in files_of(source, "lattices"):
        id = stem(path.name, SUFFIXES)
        hypotheses: tuple[Hypothesis, ...] = ()
        try:
            lattice, has_lm = lattice_of(definition(path), options)
            hypotheses = n_best(lattice, has_lm, DEFAULT_NBEST if options.nbest is None else options.nbest)
        except InputError as error:
            yield error if path.name in str(error) else error.at(where=path.name)
        yield NBestList(id, hypotheses, line=1)


def n_best(lattice: Lattice, has_lm: bool, count: int) -> tuple[Hypothesis, ...]:
    """Raises InputError."""
    hypotheses = []
    for rank, (words, path) in enumerate(best_sentences(lattice, count), 1):
        features = {
            "acoustic": path.acoustic,
            **({"lm": path.lm} if has_lm else {}),
            "first_pass": path.total,
        }
        hypotheses.append(Hypothesis(rank, " ".join(words), features))
    return tuple(hypotheses)


def definition(path: Path) -> Definition:
    """Raises InputError."""
    result = Definition()
    with open_file(path) as stream:
        for place, fields in parsed_lines(stream, parse, file=path.name):
            if isinstance(fields, InputError):
                raise fields
            for kind, entries in (("I", result.nodes), ("J", result.links)):
                if kind in fields:
                    if fields[kind] in entries:
                        raise place.error(f"{kind}={fields[kind]} comes twice")
                    entries[fields[kind]] = fields
                    break
            else:
                result.header |= fields
    for name, kind, entries in (("N", "nodes", result.nodes), ("L", "links", result.links)):
        if result.header.get(name) != str(len(entries)):
            raise InputError(
                f"{len(entries)} {kind}, but the header has {name}={result.header.get(name)}; "
                "check that the lattice is whole",
                where=path.name,
            )
    return result


def parse(line: str) -> Fields:
    """The fields of a line under their short names. Raises InputError."""
    line = line.strip()
    if line.startswith("#"):
        return {}
    if FIELD.sub("", line).strip():
        raise InputError(f"{line!r:.80}, where name=value fields were expected")
    fields = {LONG_NAMES.get(name, name): unquoted(value) for name, value in FIELD.findall(line)}
    if "SUBLAT" in fields or fields.get("L", "").startswith('"'):
        raise InputError("sub-lattices are not read; expand the lattice first")
    return fields


def unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = value[1:-1]
    return ESCAPE.sub(lambda match: chr(int(match[1], 8)) if len(match[1]) == 3 else match[1], value)


def lattice_of(lattice: Definition, options: ReadOptions) -> tuple[Lattice, bool]:
    """The lattice in nats, and whether it has language-model scores. Raises InputError."""
    header = lattice.header
    nats = log_base(header)
    acoustic_scale = scale(header, "acscale", 1.0)
    lm_scale = scale(header, "lmscale", 1.0) if options.lm_scale is None else options.lm_scale
    pronunciation_scale = scale(header, "prscale", 1.0)
    penalty = scale(header, "wdpenalty", 0.0)
    index = {name: place for place, name in enumerate(lattice.nodes)}
    words = [fields.get("W", NULL) for fields in lattice.nodes.values()]

    def node(fields: Fields, name: str) -> int:
        if fields.get(name) not in index:
            raise InputError(f"{name}={fields.get(name)} of J={fields['J']} is no node of the lattice")
        return index[fields[name]]

    links = []
    for fields in lattice.links.values():
        if "W" in fields:
            raise InputError("words on links (W= in a J line) are not read; put them on nodes")
        start, end = node(fields, "S"), node(fields, "E")
        acoustic, lm, pronunciation = (
            number(fields.get(name, "0"), f"{name}= of J={fields['J']}") for name in "alr"
        )
        total = acoustic_scale * acoustic + lm_scale * lm + pronunciation_scale * pronunciation
        total += 0.0 if words[end] == NULL else penalty
        links.append(Link(start, end, total * nats, acoustic * nats, lm * nats))
    ends = {
        "start": set(range(len(words))) - {link.end for link in links},
        "end": set(range(len(words))) - {link.start for link in links},
    }
    start, end = (end_node(header, name, index, nodes) for name, nodes in ends.items())
    return Lattice(words, links, start, end), any("l" in fields for fields in lattice.links.values())


def end_node(header: Fields, name: str, index: dict[str, int], candidates: set[int]) -> int:
    """The node the header names as `name`, or the only candidate. Raises InputError."""
    if name in header:
        if header[name] in index:
            return index[header[name]]
        raise InputError(f"{name}={header[name]} is no node of the lattice")
    if len(candidates) != 1:
        raise InputError(f"{len(candidates)} nodes could be the {name}; name it in the header with {name}=")
    return min(candidates)


def scale(header: Fields, name: str, default: float) -> float:
    return number(header[name], name) if name in header else default


def log_base(header: Fields) -> float:
    """ln of the base of the scores. Raises InputError."""
    base = scale(header, "base", math.e)
    if base <= 0 or base == 1:
        raise InputError(f"base={header['base']}: scores that are not logarithms are not read")
    return math.log(base)


HTK = Format("htk", read, options=frozenset({"nbest", "lm_scale"}), written_as="jsonl")
