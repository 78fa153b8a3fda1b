"""N-best lists of all decoders, read and written."""

from mlmfast.rescoring.formats.detection import detect_format
from mlmfast.rescoring.formats.reading import read_lists
from mlmfast.rescoring.formats.references import read_references
from mlmfast.rescoring.formats.registry import FORMATS
from mlmfast.rescoring.formats.writing import open_lists

__all__ = ["FORMATS", "detect_format", "open_lists", "read_lists", "read_references"]
