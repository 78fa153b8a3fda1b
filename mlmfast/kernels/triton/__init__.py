"""Triton kernels of the scoring rules, for NVIDIA GPUs; `mlmfast.kernels.rule_triton` launches them.

None of them stores logits: each recomputes them a tile at a time from the hidden states and the weight.
They run on a CPU under Triton's interpreter (TRITON_INTERPRET=1 before triton is first imported).
"""
