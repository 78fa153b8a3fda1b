"""Plain counting: what touches memory and what calculates is written down as it happens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kernel_work import Shape


@dataclass
class Ledger:
    read: dict[tuple[object, ...], int] = field(default_factory=dict)
    """Bytes of each element read, by array and indices; again is for nothing."""
    written: dict[tuple[object, ...], int] = field(default_factory=dict)
    matrix_flops: int = 0
    vector_flops: int = 0

    def load(self, size: int, *element: object) -> Value:
        self.read[element] = size
        return Value(self)

    def store(self, size: int, *element: object) -> None:
        self.written[element] = size

    def product(self, depth: int) -> None:
        """One element of a product of matrices."""
        for _ in range(depth):
            self.matrix_flops += 1  # multiplied
            self.matrix_flops += 1  # and added

    @property
    def bytes(self) -> int:
        return sum(self.read.values()) + sum(self.written.values())


@dataclass
class Value:
    """A float of which only the operations matter."""

    ledger: Ledger

    def operation(self, *_: object) -> Value:
        self.ledger.vector_flops += 1
        return self

    __add__ = __radd__ = __sub__ = __mul__ = __rmul__ = __truediv__ = __neg__ = __lt__ = operation


def exp(x: Value) -> Value:
    return x.operation()


erf = rsqrt = exp


def total(values: Iterable[Value]) -> Value | float:
    result: Value | float = 0.0
    for value in values:
        result = result + value
    return result


def normalise(row: Sequence[Value], ledger: Ledger) -> None:
    """Layer normalisation as normalisation.normalised computes it."""
    count = len(row)
    mean = total(row) / count
    centred = [x - mean for x in row]
    variance = total(x * x for x in centred) / count
    factor = rsqrt(variance + 1e-12)
    for column, x in enumerate(centred):
        _ = x * factor * ledger.load(4, "weight", column) + ledger.load(4, "bias", column)


@dataclass
class Batch:
    """The rows of a shape: text and masked position of each."""

    shape: Shape
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def rows(self) -> list[tuple[int, int]]:
        shape = self.shape
        return [(text, at) for text in range(shape.num_texts) for at in range(1, shape.text_length - 1)]

    @property
    def tokens(self) -> list[tuple[int, int]]:
        """Row and position of each packed token."""
        return [(row, at) for row in range(len(self.rows)) for at in range(self.shape.text_length)]

    def offsets(self, name: str, count: int) -> None:
        """A search through a CSR list."""
        for index in range(count + 1):
            self.ledger.load(4, name, index)

    def text_of(self, row: int) -> int:
        self.ledger.load(4, "row_text", row)
        self.offsets("text_offsets", self.shape.num_texts)
        return self.rows[row][0]

    def embed(self, size: int, text: int, at: int, masked: bool, scaled: bool) -> list[Value]:
        """Words of all tokens are different, types the same."""
        ledger, token = self.ledger, text * self.shape.text_length + at
        ledger.load(4, "text_types", token)
        row = []
        for column in range(self.shape.hidden_size):
            x = ledger.load(size, "word", "mask" if masked else token, column)
            if scaled:
                x = x * ledger.load(4, "row_scale", 0)
            x = x + ledger.load(size, "type", 0, column)
            row.append(x + ledger.load(size, "position", at, column))
        return row
