"""Rescoring against plain scoring, `eval` on many hypotheses, latency of one list in memory.

`python benchmarks/bench_rescoring.py [--lists N] [--hypotheses N] ...`: lists are variants of one sentence
each, as a decoder makes them. Plain scoring gets one hypothesis of each list at a time, so that there is
little to share, in turns with rescoring of whole lists. Exits with status 1 if rescoring computes rows at
less than LEAST_RATE of the plain rate.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from machine import banner
from texts import INAUGURAL

import mlmfast
from mlmfast.rescoring import (
    Hypothesis,
    LanguageModel,
    NBestList,
    Rescorer,
    first_pass_order,
    mlm_scoring,
    open_lists,
    read_lists,
)
from mlmfast.rescoring.evaluation import evaluate, read_corpora
from mlmfast.rescoring.metrics import metric_named
from mlmfast.scorer import RowCounts

LEAST_RATE = 0.9
WORDS = 12
CHANGED = 0.12
"""Of the words of a hypothesis, those that are not the sentence's."""
EVALUATED = (1000, 100)
LATENCY_HYPOTHESES, LATENCY_WORDS = 10, 13
"""About 15 tokens each."""


def make_lists(choose: random.Random, num_lists: int, num_hypotheses: int, num_words: int) -> list[NBestList]:
    words = INAUGURAL.read_text(encoding="utf-8").lower().split()
    lists = []
    for index in range(num_lists):
        start = choose.randrange(len(words) - num_words)
        sentence = words[start : start + num_words]
        texts = [
            " ".join(choose.choice(words) if choose.random() < CHANGED else word for word in sentence)
            for _ in range(num_hypotheses)
        ]
        hypotheses = [Hypothesis(rank, t, {"first_pass": -float(rank)}) for rank, t in enumerate(texts, 1)]
        lists.append(NBestList(f"u{index}", tuple(hypotheses), (" ".join(sentence),)))
    return lists


def throughput(scorer: mlmfast.Scorer, lists: list[NBestList], rounds: int) -> float:
    """Prints rates; the ratio of rows computed per second, rescoring over plain."""
    ratios, lines = [], []
    parts = np.array_split(np.arange(len(lists)), rounds)
    for part in parts:
        own = [lists[index] for index in part]
        plain_counts = RowCounts()
        one_each = [nbest.hypotheses[rank].text for rank in range(len(own[0].hypotheses)) for nbest in own]
        few = one_each[: max(len(one_each) // 4, len(own))]
        started = time.perf_counter()
        scorer.score(few, counts=plain_counts)
        plain = plain_counts.num_computed / (time.perf_counter() - started)
        rescorer = Rescorer([LanguageModel(scorer)], mlm_scoring({"mlm": 0.5}))
        started = time.perf_counter()
        for _ in rescorer.rescore_lists(own):
            pass
        seconds = time.perf_counter() - started
        counts = rescorer.counts
        rate = counts.num_computed / seconds
        ratios.append(rate / plain)
        rates = f"| {plain:,.0f} | {rate:,.0f} | {rate / plain:.2f} "
        rows = f"| {counts.num_rows:,} | {counts.num_computed:,} "
        lines.append(f"{rates}{rows}| {counts.num_texts / seconds:,.0f} |")
    print("| plain rows/s | rescoring rows/s | ratio | rows asked | computed | hypotheses/s |")
    print("|---:|---:|---:|---:|---:|---:|")
    print("\n".join(lines), flush=True)
    return statistics.median(ratios)


def evaluation_seconds(choose: random.Random) -> float:
    """Seconds to read a file of lists and get WER, interval, error counts and oracle."""
    wer = metric_named("wer")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lists.json"
        with open_lists(path, "mlm-scoring", settings={}) as out:
            for nbest in make_lists(choose, *EVALUATED, WORDS):
                out.write(first_pass_order(nbest))
            out.finish({})
        started = time.perf_counter()
        found = evaluate(read_corpora(read_lists(path), [wer]), wer)
        seconds = time.perf_counter() - started
    if found.num_hypotheses != EVALUATED[0] * EVALUATED[1]:
        raise SystemExit(f"{found.num_hypotheses} hypotheses were evaluated")
    return seconds


def latencies(scorer: mlmfast.Scorer, choose: random.Random, repeats: int) -> tuple[list[float], float]:
    """Seconds of each call of `rescore`, every time another list, and the tokens of a hypothesis."""
    rescorer = Rescorer([LanguageModel(scorer)], mlm_scoring({"mlm": 0.5}))
    seconds = []
    warm_up = 3
    for nbest in make_lists(choose, repeats + warm_up, LATENCY_HYPOTHESES, LATENCY_WORDS):
        texts = [hypothesis.text for hypothesis in nbest.hypotheses]
        scores = [hypothesis.features["first_pass"] for hypothesis in nbest.hypotheses]
        started = time.perf_counter()
        rescorer.rescore(texts, scores)
        seconds.append(time.perf_counter() - started)
    counts = rescorer.counts
    return seconds[warm_up:], counts.num_rows / counts.num_texts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lists", type=int, default=100)
    parser.add_argument("--hypotheses", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=200, help="calls for the latency")
    parser.add_argument("--precision", default="bf16x3")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()

    choose = random.Random(0)
    print(f"{banner(options.workers)}\n- precision: {options.precision}\n")
    with mlmfast.load(precision=options.precision, workers=options.workers) as scorer:
        lists = make_lists(choose, options.lists, options.hypotheses, WORDS)
        ratio = throughput(scorer, lists, options.rounds)
        print(f"\nrescoring computes rows at {ratio:.2f} of the plain rate (median of {options.rounds})\n")
        seconds, tokens = latencies(scorer, choose, options.repeats)
    p50, p99 = (1000 * float(value) for value in np.quantile(seconds, [0.5, 0.99]))
    print(
        f"one list of {LATENCY_HYPOTHESES} hypotheses of {tokens:.1f} tokens in memory: "
        f"p50 {p50:.1f} ms, p99 {p99:.1f} ms ({options.repeats} calls)"
    )
    lists_read, hypotheses_read = EVALUATED
    print(f"eval of {lists_read * hypotheses_read:,} hypotheses: {evaluation_seconds(choose):.1f} s")
    if ratio < LEAST_RATE:
        raise SystemExit(f"rescoring computes rows at less than {LEAST_RATE} of the plain rate")


if __name__ == "__main__":
    main()
