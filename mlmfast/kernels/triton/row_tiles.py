"""How the encoder's kernels divide [n, C] columns among programs. Without triton itself."""

from __future__ import annotations

from dataclasses import dataclass

from mlmfast.kernels.triton.launch import divide_up

NUM_WARPS = 4
TILE_ELEMENTS = 2048
"""Of a program, 16 a thread: few registers, so that enough programs are resident to hide memory."""
PART_COLUMNS = 256
"""Of a program that needs no whole rows, at most."""
INDEX_ELEMENTS = 512
"""Of a program that computes one integer for each."""


@dataclass(frozen=True)
class RowTile:
    """One program holds `rows` x `columns` elements, both powers of two."""

    rows: int
    columns: int
    num_warps: int

    def grid(self, num_rows: int, num_columns: int) -> tuple[int, int]:
        return divide_up(num_rows, self.rows), divide_up(num_columns, self.columns)

    @property
    def constants(self) -> dict[str, int]:
        """What a kernel is compiled for."""
        return {"ROWS": self.rows, "COLUMNS": self.columns, "num_warps": self.num_warps}


def whole_rows(num_columns: int) -> RowTile:
    """Of programs that reduce rows. Long ones have more warps rather than more registers."""
    columns = power_of_2_from(num_columns)
    rows = max(1, TILE_ELEMENTS // columns)
    return RowTile(rows, columns, NUM_WARPS * rows * columns // TILE_ELEMENTS)


def parts_of_rows(num_columns: int) -> RowTile:
    """Of programs to which columns are independent."""
    columns = min(PART_COLUMNS, power_of_2_from(num_columns))
    return RowTile(TILE_ELEMENTS // columns, columns, NUM_WARPS)


def power_of_2_from(number: int) -> int:
    return 1 << (number - 1).bit_length()
