"""Scores lines with an exported graph, onnxruntime and tokenizers alone: `python score_onnx.py DIR < LINES`.

DIR: what `mlmfast export --kind pll` or `--kind single-pass` wrote. Prints score, number of tokens and text,
separated by tabs; the score is the sum of natural-log probabilities, or a student's prediction of it.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import tokenizers


def main() -> None:
    folder = Path(sys.argv[1])
    description = json.loads((folder / "mlmfast_onnx.json").read_text(encoding="utf-8"))
    kind, special = description["kind"], description["special_tokens"]
    if kind not in ("pll", "single-pass"):
        sys.exit(f"{folder} is a {kind} graph; this program runs pll and single-pass ones")

    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True  # [MASK] typed in a text is plain text

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )

    for number, line in enumerate(sys.stdin, start=1):
        text = line.rstrip("\n")
        ids = tokenizer.encode(text).ids
        num_tokens = len(ids) - special["prefix"] - special["suffix"]
        if len(ids) > description["max_length"]:
            sys.exit(f"line {number}: {len(ids)} tokens, but the model takes {description['max_length']}")
        if num_tokens == 0:
            print(f"null\t0\t{text}")  # no token, no score
            continue
        if kind == "pll":
            inputs = {"input_ids": np.array(ids, dtype=np.int64)}
            score = session.run(["log_probs"], inputs)[0].sum(dtype=np.float64)
        else:
            rows = np.array([ids], dtype=np.int64)
            inputs = {"input_ids": rows, "attention_mask": np.ones_like(rows)}
            score = session.run(["score"], inputs)[0][0]
        print(f"{score:.4f}\t{num_tokens}\t{text}")


if __name__ == "__main__":
    main()
