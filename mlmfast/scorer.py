"""The façade: load a model, score texts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from threading import Lock
from types import TracebackType

from mlmfast.energies import EnergySettings, energies
from mlmfast.engines import Engine, Outputs, open_engine
from mlmfast.engines.base import Closable, ModelFiles
from mlmfast.errors import InputError, SettingsError
from mlmfast.loading import open_model
from mlmfast.metrics import CorpusTotals, corpus_totals
from mlmfast.models import EMBEDDED_MODEL, EMBEDDED_STUDENT
from mlmfast.plans import ScoringPlan, check_whole, plan_for
from mlmfast.results import TextScore
from mlmfast.scoring import RowCounts, check_on_error, results_of
from mlmfast.types import Int64Array, JsonRecord
from mlmfast.windows import Window
from mlmfast.workers import RowSource, Workers

__all__ = ["RowCounts", "Scorer", "load", "open_model"]


def load(
    model: str | os.PathLike[str] | None = None,
    *,
    engine: str = "auto",
    precision: str | None = None,
    device: str | None = None,
    workers: int | None = None,
    max_batch_tokens: int | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
) -> Scorer:
    """A scorer for a model.

    model: None for the embedded English model, a local folder, or a hub id (with `revision`).
    engine: `native` (our own, on a CPU), `packed` (our own, on a GPU), `torch`, `onnx` (exports), or `auto`,
    which takes the first that can. precision: `float32`, `bfloat16`, native only `bf16x3`, `bf16x4`, `int8`,
    packed only `float16`; by default the fastest that a check at load finds exact. device: `cpu`, `cuda`,
    ...; by default packed takes every GPU there is, with a process for each where there are several. workers:
    threads that compute, by default one per core. max_batch_tokens: tokens of one batch, padding counted.
    allow_pickle: also read pickled weights, which can run code.

    Raises ModelError if the model cannot be found, read or trusted; SettingsError for options that are
    unknown or do not fit; MissingExtraError if the engine's packages are not installed.
    """
    for name, value in (("workers", workers), ("max_batch_tokens", max_batch_tokens)):
        if value is not None:
            check_whole(name, value, 1)
    files = open_model(model, revision=revision, allow_pickle=allow_pickle)
    runtime = open_engine(files, engine=engine, precision=precision, device=device)
    student = None
    if files.source.name == EMBEDDED_MODEL:
        student = partial(
            load,
            EMBEDDED_STUDENT,
            engine=engine,
            precision=precision,
            device=device,
            workers=workers,
            max_batch_tokens=max_batch_tokens,
        )
    return Scorer(files, runtime, workers=workers, max_batch_tokens=max_batch_tokens, load_student=student)


class Scorer:
    """Scores texts with one model; made by `mlmfast.load`. A context manager, or `close` it when done."""

    def __init__(
        self,
        files: ModelFiles,
        engine: Engine,
        *,
        workers: int | None = None,
        max_batch_tokens: int | None = None,
        load_student: Callable[[], Scorer] | None = None,
    ) -> None:
        """load_student: the scorer for masking `student`, of a model that has a student of its own."""
        self.files = files
        self.engine = engine
        self._load_student = load_student
        self._student: Scorer | None = None
        self._lock = Lock()
        self.max_batch_tokens = max_batch_tokens or engine.max_batch_tokens
        self._workers = Workers(engine, workers)

    @property
    def num_workers(self) -> int:
        """Threads that compute."""
        return self._workers.num_workers

    @property
    def default_masking(self) -> str:
        """`student` for a student, `original` for others."""
        return "student" if self.files.config.kind == "student" else "original"

    def for_masking(self, masking: str | None) -> Scorer:
        """The scorer that the methods below score with: this one, but for masking `student` on a model that
        has a student of its own, which is loaded when first asked for and closed with this one."""
        if masking != "student" or self._load_student is None:
            return self
        with self._lock:
            if self._student is None:
                self._student = self._load_student()
            return self._student

    def score(
        self, texts: Iterable[str | InputError], masking: str | None = None, **options: object
    ) -> list[TextScore]:
        """The results of all texts, in their order; options and errors as for `score_iter`."""
        return list(self.score_iter(texts, masking, **options))  # type: ignore[arg-type]

    def score_iter(
        self,
        texts: Iterable[str | InputError],
        masking: str | None = None,
        *,
        score_eos: bool = False,
        overlong: str = "error",
        on_error: str = "raise",
        rank: bool = False,
        entropy: bool = False,
        top_k: int = 0,
        parse_special: bool = False,
        counts: RowCounts | None = None,
    ) -> Iterator[TextScore]:
        """One result per text, in order, as they come; memory does not grow with the number of texts.

        Results come a window at a time: up to 512 texts, fewer where they are long.
        An InputError among the texts stands for one that could not be read: raised or skipped in its place.

        masking: `original`, `word_l2r`, `whole_word`, `stride:K`, `none`, `causal` for causal models, or
        `student` for distilled ones and the embedded model, which has one; by default `default_masking`.
        score_eos: score the special token that ends a text too. overlong: what to do with texts longer
        than the model takes: `error`, `truncate` (flagged), `window` (half-overlapping windows).
        on_error: `raise` at the first text that cannot be scored, after the results before it, or `skip`:
        its result then has `error` and no score. rank, entropy, top_k: more per token. parse_special:
        `[MASK]` and the like typed in a text become special tokens, which are never scored. counts:
        filled in as the texts are scored.

        Raises SettingsError for options that do not fit, at once; InputError for a text, naming its index.
        """
        _check_texts(texts)
        check_on_error(on_error)
        scorer = self.for_masking(masking)
        plan = scorer._plan(
            masking,
            Outputs(rank=rank, entropy=entropy, top_k=top_k),
            score_eos=score_eos,
            overlong=overlong,
            parse_special=parse_special,
        )
        groups = scorer._results(([text] for text in texts), plan, on_error, counts)
        return (result for group in groups for result in group)

    def score_groups(
        self,
        groups: Iterable[Sequence[str | InputError]],
        masking: str | None = None,
        *,
        score_eos: bool = False,
        overlong: str = "error",
        on_error: str = "raise",
        parse_special: bool = False,
        counts: RowCounts | None = None,
    ) -> Iterator[list[TextScore]]:
        """The results of each group of texts, in order; a group may be empty.

        The texts of a group are in one window, so that rows they share (of variants of one text, say) are
        computed once; memory is that of the largest group. Options and errors as for `score_iter`.
        """
        check_on_error(on_error)
        scorer = self.for_masking(masking)
        plan = scorer._plan(masking, score_eos=score_eos, overlong=overlong, parse_special=parse_special)
        return scorer._results(groups, plan, on_error, counts)

    def prepare(
        self,
        texts: Sequence[str | InputError],
        masking: str | None = None,
        *,
        score_eos: bool = False,
        overlong: str = "error",
        parse_special: bool = False,
    ) -> Window:
        """The texts as rows of which none is computed yet, for `compute` of the same scorer (see
        `for_masking`). Options as for `score_iter`."""
        plan = self._plan(masking, score_eos=score_eos, overlong=overlong, parse_special=parse_special)
        return Window(texts, plan, self.files.tokenizer)

    def compute(self, window: RowSource, rows: Int64Array, outputs: Outputs | None = None) -> None:
        """Computes some rows, int64[r] indices, of a prepared window or another source of rows; outputs:
        what is wanted of their targets beside log-probabilities. Raises SettingsError for outputs that a
        student or an ONNX export does not give."""
        self._workers.compute(window, window.batches_of(rows), outputs or Outputs())

    def energy(
        self,
        texts: Iterable[str | InputError],
        kind: str = "raw",
        *,
        num_samples: int | None = None,
        seed: int = 0,
        parse_special: bool = False,
    ) -> list[float | None]:
        """The energy of each text, None where it has no tokens; the lower, the likelier (Goyal et al. 2022).

        kind: `raw`, minus the sum of the tokens' logits, or `norm`, minus the sum of their log-probabilities,
        each with that token alone masked; special tokens count in neither. num_samples: estimates from that
        many tokens a text, drawn uniformly and independently, instead of all (Wang & Cho 2019, section 2);
        unbiased, and for a given seed the same whatever texts come after it. parse_special as for
        `score_iter`.

        Raises SettingsError for options that do not fit the model, InputError for a text, naming its index.
        """
        _check_texts(texts)
        settings = EnergySettings(kind, num_samples, seed)
        plan = self._plan("original", settings.outputs, parse_special=parse_special)
        return list(energies(texts, settings, plan, self.files.tokenizer, self._workers))

    def pppl(
        self, texts: Iterable[str | InputError], masking: str | None = None, **options: object
    ) -> float | None:
        """Corpus pseudo-perplexity per token (Salazar et al. 2020, equation 4); None without tokens."""
        return self.totals(texts, masking, **options).pppl

    def totals(
        self, texts: Iterable[str | InputError], masking: str | None = None, **options: object
    ) -> CorpusTotals:
        """Corpus figures; options as for `score_iter`."""
        return corpus_totals(self.score_iter(texts, masking, **options))  # type: ignore[arg-type]

    def describe(self) -> JsonRecord:
        """The model and engine, as a result file must name them (weights checksum included)."""
        source = self.files.source
        engine = self.engine.describe()
        packages = {name: version(name) for name in ("mlmfast", "tokenizers")}
        return {
            "model": source.name,
            "revision": source.revision,
            "weights_sha256": self.files.checkpoint.checksum(),
            "model_type": self.files.config.model_type,
            **({} if (head := self.files.config.student_head) is None else {"student_head": head}),
            **engine,
            "versions": {**packages, **engine["versions"]},
        }

    def close(self) -> None:
        """Ends the worker threads, and the engine's processes if it has any."""
        self._workers.close()
        if isinstance(self.engine, Closable):
            self.engine.close()
        if self._student is not None:
            self._student.close()

    def __enter__(self) -> Scorer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _plan(
        self,
        masking: str | None,
        outputs: Outputs | None = None,
        *,
        score_eos: bool = False,
        overlong: str = "error",
        parse_special: bool = False,
    ) -> ScoringPlan:
        return plan_for(
            self.files,
            self.default_masking if masking is None else masking,
            outputs or Outputs(),
            max_length=self.engine.max_length,
            max_batch_tokens=self.max_batch_tokens,
            num_workers=self._workers.num_workers,
            score_eos=score_eos,
            overlong=overlong,
            parse_special=parse_special,
        )

    def _results(
        self, groups: Iterable[Sequence[object]], plan: ScoringPlan, on_error: str, counts: RowCounts | None
    ) -> Iterator[list[TextScore]]:
        return results_of(groups, plan, self.files.tokenizer, self._workers, on_error, counts or RowCounts())


def _check_texts(texts: object) -> None:
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise SettingsError(f"texts is {texts!r:.40}; expected an iterable of strings, such as [text]")
