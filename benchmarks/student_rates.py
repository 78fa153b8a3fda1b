"""Tokens a second of a teacher's masked scoring beside its students, scored in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from machine import load_average
from texts import read_pieces
from tokenizers import Tokenizer

import mlmfast

TOKENS_OF_A_ROUND = 2000
WARM_UP_PIECES = 5


def rate_texts(scorer: mlmfast.Scorer, path: Path, num_tokens: int) -> list[str]:
    """Pieces of a text of at most `num_tokens` tokens, special ones not counted, for one round."""
    tokenizer = Tokenizer.from_file(str(scorer.files.source.folder / "tokenizer.json"))
    num_special = tokenizer.num_special_tokens_to_add(is_pair=False)
    return read_pieces(path, max(TOKENS_OF_A_ROUND // num_tokens, 1), num_tokens + num_special, tokenizer)


def rate_tables(
    teacher: mlmfast.Scorer,
    students: Mapping[str, mlmfast.Scorer],
    texts: Mapping[int, Sequence[str]],
    rounds: int,
) -> str:
    """A table for each length in tokens of `texts`; the teacher's masked scoring is 1."""
    scorers = {
        "teacher, masked": (teacher, "original"),
        "teacher, unmasked": (teacher, "none"),
        **{name: (student, student.default_masking) for name, student in students.items()},
    }
    tables = [
        f"Rates on texts of up to {length} tokens:\n\n{rate_table(scorers, pieces, rounds)}"
        for length, pieces in texts.items()
    ]
    end = f"- medians of {rounds} interleaved rounds; load average at the end: {load_average()}"
    return "\n\n".join([*tables, end])


def rate_table(scorers: Mapping[str, tuple[mlmfast.Scorer, str]], texts: Sequence[str], rounds: int) -> str:
    """Rates in scored tokens; every scorer scores the texts once in each round."""
    seconds: dict[str, list[float]] = {name: [] for name in scorers}
    for scorer, masking in scorers.values():
        scorer.score(texts[:WARM_UP_PIECES], masking)
    for _ in range(rounds):
        for name, (scorer, masking) in scorers.items():
            started = time.perf_counter()
            results = scorer.score(texts, masking)
            seconds[name].append(time.perf_counter() - started)
            num_tokens = sum(result.num_tokens for result in results)
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    baseline = next(iter(medians.values()))
    lines = ["| scorer | scored tokens/s | seconds, median (min-max) | ratio (10) |", "|---|---:|---:|---:|"]
    lines += [
        f"| {name} | {num_tokens / median:,.0f} | {median:.3f} ({min(seconds[name]):.3f}-"
        f"{max(seconds[name]):.3f}) | {baseline / median:.1f} |"
        for name, median in medians.items()
    ]
    return "\n".join(lines)
