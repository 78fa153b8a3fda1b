"""A word lattice and its best word sequences."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field

from mlmfast.errors import InputError

NULL = "!NULL"
# Entering such a node says nothing.
SILENT = frozenset({NULL, "<s>", "</s>", "!SENT_START", "!SENT_END", "<eps>", "<sil>", "-pau-"})


@dataclass(frozen=True)
class Link:
    """From node `start` to node `end`, by index; total, acoustic and lm in nats, the total weighted."""

    start: int
    end: int
    total: float
    acoustic: float
    lm: float


@dataclass(frozen=True)
class Lattice:
    """An acyclic graph with words on its nodes and scores on its links."""

    words: list[str]
    links: list[Link]
    start: int
    end: int


@dataclass(frozen=True)
class Path:
    """A way from the start to some node: sums in nats."""

    total: float = 0.0
    acoustic: float = 0.0
    lm: float = 0.0

    def then(self, link: Link) -> Path:
        return Path(self.total + link.total, self.acoustic + link.acoustic, self.lm + link.lm)


@dataclass(order=True)
class Prefix:
    """Words said so far, with the best path to each node where the last of them ends.

    In the queue by the best total that a whole path can still have, then by its words. `complete` is the
    whole path of a prefix that is a sentence, else None.
    """

    cost: float
    words: tuple[str, ...]
    is_open: bool
    paths: dict[int, Path] = field(compare=False)
    complete: Path | None = field(compare=False, default=None)


def best_sentences(lattice: Lattice, count: int) -> list[tuple[tuple[str, ...], Path]]:
    """The `count` best distinct word sequences, best first, each with its best path; ties by the words.

    Exact: A* over word sequences, which determinizes the lattice as far as it is looked at (Mohri & Riley
    2002, "An efficient algorithm for the n-best-strings problem"); the estimate of what is to come is the
    true best. Raises InputError for a lattice with a cycle or without a path.
    """
    outgoing: list[list[Link]] = [[] for _ in lattice.words]
    for link in lattice.links:
        outgoing[link.start].append(link)
    order = topological_order(lattice, outgoing)
    rest = best_rest(lattice, outgoing, order)
    if rest[lattice.start] == -math.inf:
        raise InputError("no path leads from the start of the lattice to its end")
    position = {node: place for place, node in enumerate(order)}

    start = lattice.words[lattice.start]
    said = () if start in SILENT else (start,)
    queue = [Prefix(-rest[lattice.start], said, True, {lattice.start: Path()})]
    sentences: list[tuple[tuple[str, ...], Path]] = []
    while queue and len(sentences) < count:
        prefix = heapq.heappop(queue)
        if prefix.complete is not None:
            sentences.append((prefix.words, prefix.complete))
            continue
        for longer in continuations(prefix, lattice, outgoing, rest, position):
            heapq.heappush(queue, longer)
        wanted = count - len(sentences)
        if len(queue) > 4 * wanted + 64:
            # Each entry is at least one more sentence, so that only as many as are wanted can matter.
            queue = heapq.nsmallest(wanted, queue)
    return sentences


def continuations(
    prefix: Prefix,
    lattice: Lattice,
    outgoing: list[list[Link]],
    rest: list[float],
    position: dict[int, int],
) -> list[Prefix]:
    """The prefixes that are one word longer, and the sentence if the prefix is one."""
    paths = dict(prefix.paths)
    waiting = [position[node] for node in paths]
    node_at = {position[node]: node for node in paths}
    heapq.heapify(waiting)
    longer: dict[str, dict[int, Path]] = {}
    # Silent nodes are passed in topological order, so that the path to each is final when it is left.
    while waiting:
        node = node_at[heapq.heappop(waiting)]
        for link in outgoing[node]:
            if rest[link.end] == -math.inf:
                continue
            word = lattice.words[link.end]
            reached = paths if word in SILENT else longer.setdefault(word, {})
            path = paths[node].then(link)
            known = reached.get(link.end)
            if known is None and reached is paths:
                node_at[position[link.end]] = link.end
                heapq.heappush(waiting, position[link.end])
            if known is None or path.total > known.total:
                reached[link.end] = path
    found = [
        Prefix(
            -max(path.total + rest[node] for node, path in ends.items()), (*prefix.words, word), True, ends
        )
        for word, ends in longer.items()
    ]
    complete = paths.get(lattice.end)
    if complete is not None:
        found.append(Prefix(-complete.total, prefix.words, False, {}, complete))
    return found


def topological_order(lattice: Lattice, outgoing: list[list[Link]]) -> list[int]:
    """All nodes, each before those it leads to (Kahn 1962). Raises InputError."""
    incoming = [0] * len(lattice.words)
    for link in lattice.links:
        incoming[link.end] += 1
    order = [node for node, count in enumerate(incoming) if count == 0]
    for node in order:
        for link in outgoing[node]:
            incoming[link.end] -= 1
            if incoming[link.end] == 0:
                order.append(link.end)
    if len(order) < len(lattice.words):
        raise InputError("the lattice has a cycle, so that its sentences have no end; unroll it")
    return order


def best_rest(lattice: Lattice, outgoing: list[list[Link]], order: list[int]) -> list[float]:
    """The best total from each node to the end, -inf where none leads there."""
    rest = [-math.inf] * len(lattice.words)
    rest[lattice.end] = 0.0
    for node in reversed(order):
        for link in outgoing[node]:
            rest[node] = max(rest[node], link.total + rest[link.end])
    return rest
