"""One way to score texts, in a process of its own: `python contestant.py KIND FOLDER [options]`.

Loads once, then answers each line of standard input, {"texts": [...]}, with one line: wall and CPU seconds,
log-probabilities per text and token (special tokens left out), peak memory. One that cannot run here says
{"unavailable": reason} instead, and ends. It also runs in the peers' virtual environments, so nothing outside
a contestant's own function or contestant_KIND.py needs a package that is not in all of them.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from contestant_batches import Score, UnavailableError

PACKAGES = (
    *("mlmfast", "torch", "transformers", "minicons"),
    *("onnxruntime", "openvino", "ctranslate2"),
)
"""Those of them that a contestant has imported are named with their versions."""


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
    from mlmfast.errors import MissingExtraError, SettingsError, UnsupportedModelError

    try:
        scorer = mlmfast.load(
            options.folder,
            engine=options.engine,
            precision=options.precision,
            workers=options.workers,
            max_batch_tokens=options.max_batch_tokens,
        )
    except (SettingsError, UnsupportedModelError, MissingExtraError) as error:
        raise UnavailableError(str(error)) from error
    return lambda texts: [[token.log_prob for token in result.tokens] for result in scorer.score(texts)]


def module(kind: str) -> Callable[[argparse.Namespace], Score]:
    """The `load` of contestant_KIND.py."""

    def load(options: argparse.Namespace) -> Score:
        score: Score = importlib.import_module(f"contestant_{kind}").load(options)
        return score

    return load


KINDS: dict[str, Callable[[argparse.Namespace], Score]] = {
    "plain": plain_loop,
    "minicons": minicons,
    "mlmfast": mlmfast,
    **{kind: module(kind) for kind in ("torch", "onnxruntime", "openvino", "ctranslate2")},
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
    parser.add_argument("--workers", type=int, default=1, help="of mlmfast")
    parser.add_argument("--compile", action="store_true", help="of torch")
    parser.add_argument("--graph", help="made by export_graph.py, of onnxruntime and openvino")
    options = parser.parse_args()

    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not end up among the replies

    def reply(message: dict[str, object]) -> None:
        print(json.dumps(message), file=replies, flush=True)

    try:
        score = KINDS[options.kind](options)
    except UnavailableError as error:
        reply({"unavailable": str(error)})
        return
    reply(
        {
            "versions": {name: metadata.version(name) for name in PACKAGES if name in sys.modules},
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
