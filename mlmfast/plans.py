"""What is asked of every text of a call, and whether the model can answer it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mlmfast.engines import Outputs
from mlmfast.engines.base import ModelFiles
from mlmfast.errors import SettingsError
from mlmfast.scheduling import Masking

OVERLONG = ("error", "truncate", "window")


@dataclass(frozen=True)
class ScoringPlan:
    """What is asked of every text of a call. causal: the model is; max_length: what it takes, in tokens;
    num_workers: those that share the work of a window; student_head: as of ModelConfig."""

    masking: Masking
    causal: bool
    max_length: int
    max_batch_tokens: int
    num_workers: int = 1
    outputs: Outputs = field(default_factory=Outputs)
    score_eos: bool = False
    overlong: str = "error"
    parse_special: bool = False
    student_head: str | None = None

    def __post_init__(self) -> None:
        if self.overlong not in OVERLONG:
            raise SettingsError(f"unknown overlong {self.overlong!r}; expected one of {', '.join(OVERLONG)}")

    @property
    def max_tokens(self) -> int:
        """Tokens a text may have. The last token of a causal text is only predicted, never read."""
        return self.max_length + 1 if self.causal else self.max_length


def plan_for(
    files: ModelFiles,
    masking: str,
    outputs: Outputs,
    *,
    max_length: int,
    max_batch_tokens: int,
    num_workers: int,
    score_eos: bool = False,
    overlong: str = "error",
    parse_special: bool = False,
) -> ScoringPlan:
    """The plan of a call, options as for `Scorer.score_iter`. Raises SettingsError where they do not fit."""
    config, name = files.config, files.source.name
    check_whole("top_k", outputs.top_k, 0, config.vocab_size)
    chosen = Masking.parse(masking)
    needed = chosen.kind if chosen.kind in ("causal", "student") else "masked"
    if config.kind != needed:
        own = "original" if config.kind == "masked" else config.kind
        raise SettingsError(
            f"{name} is a {config.kind} model; masking {chosen.name!r} needs a {needed} one (use {own!r})"
        )
    if config.kind == "student":
        _check_student_options(config.student_head, score_eos, overlong, outputs != Outputs())
    if files.graph is not None and outputs != Outputs():
        raise SettingsError(
            f"{name} is an ONNX export, which gives log-probabilities alone; rank, entropy, top_k and raw "
            "energies need the model it was exported from"
        )
    causal = config.kind == "causal"
    word_start = causal and files.tokenizer.word_starts is not None
    return ScoringPlan(
        masking=chosen,
        causal=causal,
        max_length=max_length,
        max_batch_tokens=max_batch_tokens,
        num_workers=num_workers,
        outputs=outputs if outputs.word_start == word_start else replace(outputs, word_start=word_start),
        score_eos=score_eos,
        overlong=overlong,
        parse_special=parse_special,
        student_head=config.student_head,
    )


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


def check_whole(name: str, value: object, least: int, most: int | None = None) -> None:
    """Raises SettingsError for what is not a whole number from least to most."""
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= least
    if not fits or (most is not None and isinstance(value, int) and value > most):
        bound = f"from {least}" if most is None else f"{least} to {most}"
        raise SettingsError(f"{name} is {value!r}; expected a whole number, {bound}")
