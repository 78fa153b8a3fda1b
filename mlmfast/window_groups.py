"""How many texts make a window, and so how soon results come and how much memory they take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mlmfast.scheduling import Masking

WINDOW_TEXTS = 512
WINDOW_ROW_TOKENS = 1 << 17
"""What bounds a window: texts, and tokens of their rows as estimated."""
CHARACTERS_PER_TOKEN = 4


def _row_tokens(text: object, masking: Masking) -> int:
    """About how many tokens a text's rows have together."""
    length = len(text) // CHARACTERS_PER_TOKEN + 1 if isinstance(text, str) else 1
    rows = {"none": 1, "student": 1, "causal": 1, "stride": masking.stride}.get(masking.kind, length)
    return length * min(rows, length)


def windows_of(groups: Iterable[Sequence[object]], masking: Masking) -> Iterator[list[Sequence[object]]]:
    """Consecutive groups, as many as make a window; an empty one counts as a text."""
    window: list[Sequence[object]] = []
    num_texts = size = 0
    source = iter(groups)
    while True:
        try:
            group = next(source)
        except StopIteration:
            break
        except Exception:
            # The texts before the failure are scored before it is passed on.
            if window:
                yield window
            raise
        window.append(group)
        num_texts += max(len(group), 1)
        size += sum(_row_tokens(text, masking) for text in group)
        if num_texts >= WINDOW_TEXTS or size >= WINDOW_ROW_TOKENS:
            yield window
            window, num_texts, size = [], 0, 0
    if window:
        yield window
