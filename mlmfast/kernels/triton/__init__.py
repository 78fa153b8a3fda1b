"""Triton kernels for NVIDIA GPUs; `mlmfast.kernels.*_triton` launch them.

Those of scores and scoring rules store no logits: each recomputes them a tile at a time from the hidden
states and the weight. All run on a CPU under Triton's interpreter (TRITON_INTERPRET=1 before triton is first
imported).
"""
