"""Exports a model's gathered log-probabilities to ONNX: `python export_graph.py FOLDER OUTPUT`.

The graph: input_ids [b, length], positions [b], target_ids [b] to log_probs [b], as contestant_torch.py
computes them. Copies in a batch are of one length, so that there is no padding and no attention mask.
Runs in .venv-graph.
"""

from __future__ import annotations

import sys

import torch
from contestant_torch import load_gathered


def main() -> None:
    folder, output = sys.argv[1:]
    rows, length = torch.export.Dim("rows"), torch.export.Dim("length")
    torch.onnx.export(
        load_gathered(folder),
        (torch.ones(3, 7, dtype=torch.int64), torch.arange(3), torch.arange(3)),
        output,
        input_names=["input_ids", "positions", "target_ids"],
        output_names=["log_probs"],
        dynamic_shapes=({0: rows, 1: length}, {0: rows}, {0: rows}),
        dynamo=True,
        verbose=False,
    )


if __name__ == "__main__":
    main()
