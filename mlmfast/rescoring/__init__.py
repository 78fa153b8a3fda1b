"""N-best lists rescored with masked language models."""

from mlmfast.rescoring.formats import FORMATS, detect_format, open_lists, read_lists, read_references
from mlmfast.rescoring.lists import Hypothesis, NBestList, RescoredList, first_pass_order

__all__ = [
    "FORMATS",
    "Hypothesis",
    "NBestList",
    "RescoredList",
    "detect_format",
    "first_pass_order",
    "open_lists",
    "read_lists",
    "read_references",
]
