"""Whether a graph computes what the model computes: both are run on real and on random texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mlmfast.engines import Outputs
from mlmfast.engines.base import ModelFiles
from mlmfast.errors import MlmfastError, ModelError
from mlmfast.export.framing import Framing, sample_texts
from mlmfast.models.checkpoint import GRAPH
from mlmfast.scheduling import Masking, mask_rows, row_batch
from mlmfast.scorer import open_model
from mlmfast.types import Int32Array, Int64Array, RowBatch, TokenizedTexts

if TYPE_CHECKING:
    from mlmfast.engines.onnx_engine import OnnxEngine

BOUNDS = {"float32": (1e-4, 1e-4), "float16": (1.0, 0.05), "int8": (math.inf, 0.5)}
"""By precision: nats that the worst value may be off, and the mean. Beyond them an export fails."""
ROW_TOKENS = 1 << 14
"""Tokens of the rows of one check: a longest text that has more is cut, or has only some of its rows run."""
NUM_RANDOM = 5
SEED = 20

Values = NDArray[Any]
"""float32 or float64 [*], in nats."""


@dataclass(frozen=True)
class Sample:
    """origin: `real` or `random`; some texts, and rows of theirs as an engine takes them."""

    origin: str
    texts: TokenizedTexts
    batch: RowBatch

    @property
    def row_sizes(self) -> Int64Array:
        """int64[b], targets of each row."""
        return np.diff(self.batch.target_offsets)

    @property
    def row_of_target(self) -> Int64Array:
        """int64[t]."""
        return np.repeat(np.arange(self.batch.num_rows), self.row_sizes)


@dataclass(frozen=True)
class Agreement:
    """num_values compared; how far the worst is off, and the mean, in nats."""

    num_values: int
    worst: float
    mean: float


def check_samples(files: ModelFiles, framing: Framing, kind: str) -> list[Sample]:
    """What a graph of a kind is run on: real texts; random tokens, texts of none and of one among them; the
    longest text beside a short one; a text of one token by itself."""
    most = min(files.config.max_length, math.isqrt(ROW_TOKENS) if kind == "pll" else ROW_TOKENS)
    generator = np.random.default_rng(SEED)
    real = sample_texts(files.tokenizer)
    frame = real.input_ids[: real.offsets[1]]
    special = files.tokenizer.special.all_ids
    ordinary = [i for i in range(len(files.tokenizer.vocabulary)) if i not in special]

    def random_text(num_tokens: int) -> Int32Array:
        content = generator.choice(ordinary, num_tokens).astype(np.int32)
        return np.concatenate([frame[: framing.prefix], content, frame[len(frame) - framing.suffix :]])

    room = most - sum(framing)
    short = [random_text(int(n)) for n in generator.integers(2, min(room, 24) + 1, NUM_RANDOM)]
    whole = np.flatnonzero(real.lengths <= most)
    sets = [
        ("real", [real.input_ids[real.offsets[i] : real.offsets[i + 1]] for i in whole]),
        ("random", [random_text(0), random_text(1), *short]),
        ("random", [random_text(room), random_text(1)]),
        ("random", [random_text(1)]),
    ]
    return [_sample(files, framing, kind, origin, texts) for origin, texts in sets]


def _sample(files: ModelFiles, framing: Framing, kind: str, origin: str, ids: Sequence[Int32Array]) -> Sample:
    lengths = np.array([len(text) for text in ids])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    word_ids = [np.pad(np.arange(n - sum(framing)), framing, constant_values=-1) for n in lengths]
    texts = TokenizedTexts(
        np.concatenate(ids),
        offsets,
        None,
        np.concatenate(word_ids).astype(np.int32),
        np.zeros((offsets[-1], 2), dtype=np.int32),
    )
    scored = texts.word_ids != -1
    if files.config.student_head == "cls":
        scored[:] = False
        scored[offsets[:-1]] = True
    masking = "student" if kind == "single-pass" else "original"
    rows = mask_rows(texts, np.where(scored, np.arange(len(scored)), -1), Masking.parse(masking))
    most_rows = max(1, ROW_TOKENS // int(lengths.max()))
    taken = np.unique(np.linspace(0, rows.num_rows - 1, min(most_rows, rows.num_rows)).astype(np.int64))
    mask_id = files.tokenizer.special.mask_id
    return Sample(origin, texts, row_batch(texts, rows, taken, -1 if mask_id is None else mask_id)[0])


def expected_values(files: ModelFiles, samples: Sequence[Sample]) -> list[Values]:
    """What the model gives for the targets of each sample, by the torch engine in float32; of a student with
    head `token` also the mean of each row."""
    from mlmfast.engines.torch_engine import TorchEngine

    engine = TorchEngine(files, device="cpu")
    values = [engine.score(sample.batch, Outputs()).log_prob for sample in samples]
    if files.config.student_head != "token":
        return values
    means = [
        np.bincount(sample.row_of_target, terms) / sample.row_sizes
        for sample, terms in zip(samples, values, strict=True)
    ]
    return [np.concatenate(pair) for pair in zip(values, means, strict=True)]


def graph_values(folder: Path, samples: Sequence[Sample]) -> list[Values]:
    """The same of an exported graph, on ONNX Runtime's CPU provider. Raises ModelError."""
    try:
        return _graph_values(folder, samples)
    except MlmfastError:
        raise
    except Exception as error:  # the runtime has a dozen classes of its own, derived from Exception
        raise ModelError(f"ONNX Runtime fails on the graph ({error}); nothing was written") from error


def _graph_values(folder: Path, samples: Sequence[Sample]) -> list[Values]:
    from mlmfast.engines.onnx_engine import OnnxEngine, open_session

    files = open_model(folder)
    if files.graph is not None and files.graph.kind == "pll":
        session = open_session(folder / GRAPH)
        return [_pll_values(session, sample.texts) for sample in samples]
    engine = OnnxEngine(files)
    if files.config.student_head != "token":
        return [engine.score(sample.batch, Outputs()).log_prob for sample in samples]
    return [_student_values(folder, engine, sample) for sample in samples]


def _pll_values(session: Any, texts: TokenizedTexts) -> Values:
    sentences = np.split(texts.input_ids.astype(np.int64), texts.offsets[1:-1])
    return np.concatenate([session.run(None, {"input_ids": ids})[0] for ids in sentences])


def _student_values(folder: Path, engine: OnnxEngine, sample: Sample) -> Values:
    token_scores, score = engine.run(sample.batch)
    rows, positions = sample.row_of_target, sample.batch.target_positions
    values = token_scores[rows, positions]
    token_scores[rows, positions] = 0
    if token_scores.any():
        raise ModelError(f"{folder}: the graph gives special tokens or padding a score; nothing was written")
    return np.concatenate([values, score / sample.row_sizes])


def require_agreement(
    where: str,
    precision: str,
    samples: Sequence[Sample],
    expected: Sequence[Values],
    found: Sequence[Values],
) -> dict[str, Agreement]:
    """By origin of the texts, how far found is from expected. Raises ModelError if that is too far."""
    agreements = {}
    worst_allowed, mean_allowed = BOUNDS[precision]
    for origin in dict.fromkeys(sample.origin for sample in samples):
        pairs = [(e, f) for s, e, f in zip(samples, expected, found, strict=True) if s.origin == origin]
        errors = np.concatenate([_errors(where, *pair) for pair in pairs])
        if len(errors) == 0:
            continue
        worst, mean = float(errors.max()), float(errors.mean())
        if not (worst <= worst_allowed and mean <= mean_allowed):  # false for NaN, too
            raise ModelError(
                f"{where}: on {origin} texts the {precision} graph is off by {worst:.3g} nats at worst, "
                f"{mean:.3g} in the mean; {worst_allowed:g} and {mean_allowed:g} are allowed. Nothing was "
                "written"
            )
        agreements[origin] = Agreement(len(errors), worst, mean)
    return agreements


def _errors(where: str, expected: Values, found: Values) -> NDArray[np.float64]:
    if expected.shape != found.shape:
        raise ModelError(
            f"{where}: the graph gives {found.shape} values where {expected.shape} are expected; nothing was "
            "written"
        )
    errors: NDArray[np.float64] = np.abs(found.astype(np.float64) - expected)
    return errors
