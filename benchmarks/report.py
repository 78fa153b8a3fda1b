"""What a benchmark says, on standard output and in a file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: Collection[str] | None = None
) -> str:
    """Markdown. left: the columns that are not of numbers, by default the first."""
    texts = columns[:1] if left is None else left
    lines = [columns, ["---" if column in texts else "---:" for column in columns], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


class Report:
    """Paragraphs of markdown.

    disagreeing: which contestants had other results than the baseline, and where. versions: of each
    contestant's packages.
    """

    def __init__(self, output: Path | None) -> None:
        self.output = output
        self.disagreeing: list[str] = []
        self.versions: dict[str, str] = {}
        self._paragraphs: list[str] = []

    def say(self, paragraph: str) -> None:
        """Printed, and written to the file at once, so that an interrupted run leaves what it has."""
        print(f"{paragraph}\n", flush=True)
        self._paragraphs.append(paragraph)
        if self.output:
            self.output.write_text("\n\n".join(self._paragraphs) + "\n", encoding="utf-8")
