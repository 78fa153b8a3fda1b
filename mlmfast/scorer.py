"""The façade: load a model, score texts."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import islice
from threading import Lock
from types import TracebackType

from mlmfast.engines import Engine, Outputs, open_engine
from mlmfast.engines.base import ModelFiles
from mlmfast.engines.onnx_folder import graph_files, is_export, read_description
from mlmfast.errors import InputError, ModelError, SettingsError
from mlmfast.metrics import CorpusTotals, corpus_totals
from mlmfast.models import (
    EMBEDDED_MODEL,
    EMBEDDED_STUDENT,
    Checkpoint,
    ModelConfig,
    ModelSource,
    check_head,
    read_config,
    resolve,
    with_head_of,
)
from mlmfast.results import TextScore
from mlmfast.scheduling import Masking
from mlmfast.tokenization import load_tokenizer
from mlmfast.types import Int64Array, JsonRecord
from mlmfast.windows import ScoringPlan, Window
from mlmfast.workers import RowSource, Workers

ON_ERROR = ("raise", "skip")
WINDOW_TEXTS = 512
WINDOW_ROW_TOKENS = 1 << 17
CHARACTERS_PER_TOKEN = 4
"""What bounds a window, and so how soon results come: texts, and tokens of their rows as estimated."""


@dataclass
class RowCounts:
    """Rows the texts asked for, and rows computed after identical ones were shared."""

    num_rows: int = 0
    num_computed: int = 0

    @property
    def num_shared(self) -> int:
        return self.num_rows - self.num_computed


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
    engine: `native` (our own, on a CPU), `torch`, `onnx` (exports), or `auto`, which takes the first that
    can. precision:
    `float32`, `bf16x3`, `bfloat16` or `int8` (the second and the last native only); by default the fastest
    that a check at load finds exact. device: `cpu`, `cuda`, ...
    workers: threads that compute, by default one per core. max_batch_tokens: tokens of one batch, padding
    counted. allow_pickle: also read pickled weights, which can run code.

    Raises ModelError if the model cannot be found, read or trusted; SettingsError for options that are
    unknown or do not fit; MissingExtraError if the engine's packages are not installed.
    """
    for name, value in (("workers", workers), ("max_batch_tokens", max_batch_tokens)):
        if value is not None:
            _check_whole(name, value, 1)
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


def open_model(
    model: str | os.PathLike[str] | None = None, *, revision: str | None = None, allow_pickle: bool = False
) -> ModelFiles:
    """A model's files, found and checked but not loaded; as for `load`. Raises ModelError."""
    source = resolve(model, revision=revision, allow_pickle=allow_pickle)
    config = read_config(source.folder)
    if is_export(source.folder):
        return _open_export(source, config)
    checkpoint = Checkpoint.of(source.folder, allow_pickle=allow_pickle)
    config = with_head_of(config, checkpoint.tensors)
    files = ModelFiles(source, config, checkpoint, load_tokenizer(source.folder, config.model_type))
    _check_mask_token(files)
    try:
        check_head(config, checkpoint)
    except ModelError as error:
        raise ModelError(f"{source.folder}: {error}") from error
    return files


def _open_export(source: ModelSource, config: ModelConfig) -> ModelFiles:
    """The folder of an ONNX export, whose weights are in its graph."""
    graph = read_description(source.folder)
    graph.require_fitting(source.folder, config)
    checkpoint = Checkpoint(graph_files(source.folder))
    tokenizer = load_tokenizer(source.folder, config.model_type)
    files = ModelFiles(source, config, checkpoint, tokenizer, graph)
    _check_mask_token(files)
    return files


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
        if isinstance(texts, str) or not isinstance(texts, Iterable):
            raise SettingsError(f"texts is {texts!r:.40}; expected an iterable of strings, such as [text]")
        scorer = self.for_masking(masking)
        plan = scorer._plan(masking, score_eos, overlong, on_error, rank, entropy, top_k, parse_special)
        groups = scorer._results(([text] for text in texts), plan, on_error, counts or RowCounts())
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
        scorer = self.for_masking(masking)
        plan = scorer._plan(masking, score_eos, overlong, on_error, False, False, 0, parse_special)
        return scorer._results(groups, plan, on_error, counts or RowCounts())

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
        plan = self._plan(masking, score_eos, overlong, "raise", False, False, 0, parse_special)
        return Window(texts, plan, self.files.tokenizer)

    def compute(self, window: RowSource, rows: Int64Array) -> None:
        """Computes some rows, int64[r] indices, of a prepared window or another source of rows."""
        self._workers.compute(window, window.batches_of(rows), Outputs())

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
        """Ends the worker threads."""
        self._workers.close()
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
        score_eos: bool,
        overlong: str,
        on_error: str,
        rank: bool,
        entropy: bool,
        top_k: int,
        parse_special: bool,
    ) -> ScoringPlan:
        if on_error not in ON_ERROR:
            raise SettingsError(f"unknown on_error {on_error!r}; expected one of {', '.join(ON_ERROR)}")
        _check_whole("top_k", top_k, 0, self.files.config.vocab_size)
        chosen = Masking.parse(self.default_masking if masking is None else masking)
        config = self.files.config
        needed = chosen.kind if chosen.kind in ("causal", "student") else "masked"
        if config.kind != needed:
            own = "original" if config.kind == "masked" else config.kind
            raise SettingsError(
                f"{self.files.source.name} is a {config.kind} model; masking {chosen.name!r} needs a "
                f"{needed} one (use {own!r})"
            )
        if config.kind == "student":
            _check_student_options(config.student_head, score_eos, overlong, rank or entropy or top_k > 0)
        if self.files.graph is not None and (rank or entropy or top_k):
            raise SettingsError(
                f"{self.files.source.name} is an ONNX export, which gives log-probabilities alone; rank, "
                "entropy and top_k need the model it was exported from"
            )
        causal = config.kind == "causal"
        return ScoringPlan(
            masking=chosen,
            causal=causal,
            max_length=self.engine.max_length,
            max_batch_tokens=self.max_batch_tokens,
            num_workers=self._workers.num_workers,
            outputs=Outputs(
                rank=rank,
                entropy=entropy,
                top_k=top_k,
                word_start=causal and self.files.tokenizer.word_starts is not None,
            ),
            score_eos=score_eos,
            overlong=overlong,
            parse_special=parse_special,
            student_head=config.student_head,
        )

    def _results(
        self,
        groups: Iterable[Sequence[object]],
        plan: ScoringPlan,
        on_error: str,
        counts: RowCounts,
    ) -> Iterator[list[TextScore]]:
        sizes: deque[list[int]] = deque()

        def windows() -> Iterator[Window]:
            for window in _windows_of(groups, plan.masking):
                sizes.append([len(group) for group in window])
                texts = [text for group in window for text in group]
                yield Window(texts, plan, self.files.tokenizer)

        first = 0
        for window in self._workers.run(windows(), plan.outputs):
            counts.num_rows += window.num_rows
            counts.num_computed += window.num_computed
            results = _checked(window, plan, first, on_error)
            for size in sizes.popleft():
                yield list(islice(results, size))
                first += size


def _check_student_options(head: str | None, score_eos: bool, overlong: str, distribution: bool) -> None:
    """distribution: whether more is asked of a token's distribution."""
    if distribution:
        raise SettingsError(
            "rank, entropy and top_k are of a distribution over the vocabulary, which a student does not give"
        )
    if score_eos:
        raise SettingsError("score_eos: a student has no value for special tokens; leave it out")
    if head == "cls" and overlong == "window":
        raise SettingsError(
            "overlong='window': a student with head cls gives one score for a whole text, and those of its "
            "windows do not add up; use 'truncate' or 'error'"
        )


def _check_whole(name: str, value: object, least: int, most: int | None = None) -> None:
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= least
    if not fits or (most is not None and isinstance(value, int) and value > most):
        bound = f"from {least}" if most is None else f"{least} to {most}"
        raise SettingsError(f"{name} is {value!r}; expected a whole number, {bound}")


def _row_tokens(text: object, masking: Masking) -> int:
    """About how many tokens a text's rows have together."""
    length = len(text) // CHARACTERS_PER_TOKEN + 1 if isinstance(text, str) else 1
    rows = {"none": 1, "student": 1, "causal": 1, "stride": masking.stride}.get(masking.kind, length)
    return length * min(rows, length)


def _windows_of(groups: Iterable[Sequence[object]], masking: Masking) -> Iterator[list[Sequence[object]]]:
    """Consecutive groups, as many as make a window; an empty one counts as a text."""
    window: list[Sequence[object]] = []
    num_texts = size = 0
    source = iter(groups)
    while True:
        try:
            group = next(source)
        except StopIteration:
            break
        except Exception:
            # The texts before the failure are scored before it is passed on.
            if window:
                yield window
            raise
        window.append(group)
        num_texts += max(len(group), 1)
        size += sum(_row_tokens(text, masking) for text in group)
        if num_texts >= WINDOW_TEXTS or size >= WINDOW_ROW_TOKENS:
            yield window
            window, num_texts, size = [], 0, 0
    if window:
        yield window


def _checked(window: Window, plan: ScoringPlan, first: int, on_error: str) -> Iterator[TextScore]:
    """The results of a window whose first text is text `first` of the call; errors raised or put in them."""
    for index, result in enumerate(window.results()):
        if isinstance(result, TextScore):
            yield result
        elif on_error == "raise":
            raise result if result.line is not None else result.at(where=f"texts[{first + index}]")
        else:
            yield TextScore(
                window.text(index),
                plan.masking.name,
                score=None,
                error=result.reason,
                student_head=plan.student_head,
            )


def _check_mask_token(files: ModelFiles) -> None:
    special, name = files.tokenizer.special, files.source.name
    if files.config.kind == "masked":
        if special.mask_id is None:
            raise ModelError(f"{name}: its tokenizer has no mask token, which a masked model needs")
        if special.mask_id == special.unknown_id:
            raise ModelError(f"{name}: its tokenizer has no mask token of its own: it is the unknown token")
    too_large = len(files.tokenizer.vocabulary) - files.config.vocab_size
    if too_large > 0 and any(files.tokenizer.vocabulary[files.config.vocab_size :]):
        raise ModelError(
            f"{name}: its tokenizer has {len(files.tokenizer.vocabulary)} tokens, its config.json vocab_size "
            f"says {files.config.vocab_size}; the two do not belong together"
        )
