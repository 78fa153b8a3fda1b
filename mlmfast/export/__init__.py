"""Models as ONNX graphs that any runtime embeds (docs/onnx.md)."""

from mlmfast.export.run import export_model

__all__ = ["export_model"]
