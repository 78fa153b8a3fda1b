"""One way to score texts, in a process of its own: `python contestant.py KIND FOLDER [options]`.

Loads once, then answers each line of standard input, {"texts": [...]}, with one line: wall and CPU seconds,
log-probabilities per text and token (special tokens left out), peak memory. It also runs in the peers'
virtual environments, so nothing outside a contestant's own function needs a package.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

Score = Callable[[Sequence[str]], list[list[float]]]


def plain_loop(options: argparse.Namespace) -> Score:
    """One forward per text over its masked copies, logits and log-softmax at every position."""
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(options.folder)
    model = AutoModelForMaskedLM.from_pretrained(options.folder, dtype=torch.float32).eval()

    def log_probs_of(text: str) -> list[float]:
        encoded = tokenizer(text, return_special_tokens_mask=True, return_tensors="pt")
        ids = encoded["input_ids"][0]
        targets = (encoded["special_tokens_mask"][0] == 0).nonzero()[:, 0]
        rows = torch.arange(len(targets))
        copies = ids.repeat(len(targets), 1)
        copies[rows, targets] = tokenizer.mask_token_id
        with torch.inference_mode():
            log_probs = model(input_ids=copies).logits.log_softmax(dim=-1)  # [targets, length, V]
        scored: list[float] = log_probs[rows, targets, ids[targets]].tolist()
        return scored

    return lambda texts: [log_probs_of(text) for text in texts]


def minicons(options: argparse.Namespace) -> Score:
    """minicons, one text per call, so that it pads nothing."""
    import torch
    from minicons.scorer import MaskedLMScorer  # type: ignore[import-not-found]

    torch.set_num_threads(1)
    scorer = MaskedLMScorer(options.folder, "cpu", PLL_metric="original")

    def log_probs_of(text: str) -> list[float]:
        scored: list[float] = scorer.sequence_score([text], reduction=lambda scores: scores.tolist())[0]
        return scored

    return lambda texts: [log_probs_of(text) for text in texts]


def mlmfast(options: argparse.Namespace) -> Score:
    import mlmfast

    scorer = mlmfast.load(
        options.folder,
        engine=options.engine,
        precision=options.precision,
        workers=1,
        max_batch_tokens=options.max_batch_tokens,
    )
    return lambda texts: [[token.log_prob for token in result.tokens] for result in scorer.score(texts)]


KINDS: dict[str, Callable[[argparse.Namespace], Score]] = {
    "plain": plain_loop,
    "minicons": minicons,
    "mlmfast": mlmfast,
}


def memory_mb(field: str) -> float:
    """`VmHWM` (peak) or `VmRSS` (now) of this process; Linux only."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folder")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--precision")
    parser.add_argument("--max-batch-tokens", type=int)
    options = parser.parse_args()

    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not end up among the replies

    def reply(message: dict[str, object]) -> None:
        print(json.dumps(message), file=replies, flush=True)

    score = KINDS[options.kind](options)
    packages = ("torch", "transformers", *(["minicons"] if options.kind == "minicons" else []))
    reply(
        {
            "versions": {name: metadata.version(name) for name in packages},
            "loaded_mb": memory_mb("VmRSS"),
        }
    )
    for line in sys.stdin:
        texts = json.loads(line)["texts"]
        start, cpu_start = time.perf_counter(), time.process_time()
        log_probs = score(texts)
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
        reply(
            {
                "seconds": seconds,
                "cpu_seconds": cpu_seconds,
                "log_probs": log_probs,
                "peak_mb": memory_mb("VmHWM"),
            }
        )


if __name__ == "__main__":
    main()
