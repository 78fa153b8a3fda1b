"""All formats by name."""

from __future__ import annotations

from mlmfast.errors import SettingsError
from mlmfast.rescoring.formats.base import Format
from mlmfast.rescoring.formats.espnet import ESPNET
from mlmfast.rescoring.formats.fairseq import FAIRSEQ
from mlmfast.rescoring.formats.htk import HTK
from mlmfast.rescoring.formats.kaldi import KALDI
from mlmfast.rescoring.formats.mlm_scoring import MLM_SCORING, NOBPE
from mlmfast.rescoring.formats.moses import MOSES
from mlmfast.rescoring.formats.nemo import NEMO
from mlmfast.rescoring.formats.plain_text import KEYED, TEXT
from mlmfast.rescoring.formats.srilm import SRILM
from mlmfast.rescoring.formats.tables import CSV, JSONL

OF_DECODERS = (MLM_SCORING, NOBPE, KALDI, ESPNET, NEMO, MOSES, FAIRSEQ, SRILM, HTK)
FORMATS: dict[str, Format] = {format.name: format for format in (*OF_DECODERS, JSONL, CSV, TEXT, KEYED)}


def format_named(name: str) -> Format:
    """Raises SettingsError."""
    if name not in FORMATS:
        raise SettingsError(f"unknown list format {name!r}; choose one of {', '.join(FORMATS)}")
    return FORMATS[name]
