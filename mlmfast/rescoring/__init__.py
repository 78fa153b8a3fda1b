"""N-best lists rescored with masked language models."""

from mlmfast.rescoring.cascade import Cascade, rescore_in_cascade
from mlmfast.rescoring.formats import FORMATS, detect_format, open_lists, read_lists, read_references
from mlmfast.rescoring.language_model import LanguageModel
from mlmfast.rescoring.lazy_rescoring import rescore_lazily
from mlmfast.rescoring.lists import Hypothesis, NBestList, RescoredList, first_pass_order
from mlmfast.rescoring.normalisation import Normalisation
from mlmfast.rescoring.rescorer import Rescorer
from mlmfast.rescoring.text_preparation import TextPreparation
from mlmfast.rescoring.weights import Weights, fairseq_mlm_scoring, mlm_scoring, read_weights

__all__ = [
    "FORMATS",
    "Cascade",
    "Hypothesis",
    "LanguageModel",
    "NBestList",
    "Normalisation",
    "RescoredList",
    "Rescorer",
    "TextPreparation",
    "Weights",
    "detect_format",
    "fairseq_mlm_scoring",
    "first_pass_order",
    "mlm_scoring",
    "open_lists",
    "read_lists",
    "read_references",
    "read_weights",
    "rescore_in_cascade",
    "rescore_lazily",
]
