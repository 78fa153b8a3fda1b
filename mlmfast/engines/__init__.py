"""The runtimes that forward batches."""

from mlmfast.engines.base import Engine, Outputs, open_engine

__all__ = ["Engine", "Outputs", "open_engine"]
