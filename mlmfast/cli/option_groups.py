"""Options that several commands have, as groups: a command takes a group as one parameter."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal, get_type_hints

import typer

from mlmfast.types import JsonRecord

Command = Callable[..., None]


@dataclass(frozen=True)
class EngineOptions:
    """How a model is loaded and run."""

    revision: Annotated[str | None, typer.Option(help="Hub revision: a branch, tag or commit.")] = None
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Also load pickled weights, which can run code.")
    ] = False
    engine: Annotated[str, typer.Option(help="auto, native, packed, torch or onnx.")] = "auto"
    precision: Annotated[
        str | None,
        typer.Option(
            help="float32, bf16x3, bf16x4, bfloat16, float16 or int8; by default the fastest that is exact."
        ),
    ] = None
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1, ...; of ONNX exports also tensorrt.")
    ] = None
    workers: Annotated[int | None, typer.Option(min=1, help="Threads; by default one per core.")] = None
    max_batch_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of one batch.")] = None

    def environment(self) -> JsonRecord:
        """What changes no score and may differ when an output is continued."""
        return {"workers": self.workers, "max_batch_tokens": self.max_batch_tokens}


@dataclass(frozen=True)
class ScoringOptions:
    """What a score is."""

    masking: Annotated[
        str | None,
        typer.Option(
            help="original (the default), word_l2r, whole_word, stride:K, none, causal, or student (the "
            "default of distilled models)."
        ),
    ] = None
    overlong: Annotated[
        Literal["error", "truncate", "window"], typer.Option(help="For texts longer than the model takes.")
    ] = "error"
    score_eos: Annotated[
        bool, typer.Option("--score-eos", help="Score the special token that ends a text, too.")
    ] = False
    parse_special: Annotated[
        bool, typer.Option("--parse-special", help="[MASK] and the like in a text are special tokens.")
    ] = False


@dataclass(frozen=True)
class RunOptions:
    """How a run goes."""

    on_error: Annotated[Literal["raise", "skip"], typer.Option(help="For records that cannot be scored.")] = (
        "raise"
    )
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar and no summary.")] = False


@dataclass(frozen=True)
class OutputOptions:
    """Where a run writes to."""

    output: Annotated[str, typer.Option(metavar="FILE", help="Output; - for standard output.")] = "-"
    resume: Annotated[bool, typer.Option("--resume", help="Continue an unfinished output.")] = False


def grouped(command: Command) -> Command:
    """A command whose parameters of a dataclass type are replaced by the options that its fields are.

    What the command line gives for the fields reaches the command as one object.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    own = inspect.signature(command).parameters
    parameters = [
        parameter.replace(annotation=hints[name]) for name, parameter in own.items() if name not in groups
    ]
    members: dict[str, list[str]] = {}
    for name, group in groups.items():
        members[name] = [field.name for field in fields(group)]
        defaults, annotations = group(), get_type_hints(group, include_extras=True)
        parameters += [
            inspect.Parameter(
                member,
                inspect.Parameter.KEYWORD_ONLY,
                default=getattr(defaults, member),
                annotation=annotations[member],
            )
            for member in members[name]
        ]

    @functools.wraps(command)
    def with_groups(**values: Any) -> None:
        taken = {
            name: groups[name](**{member: values.pop(member) for member in names})
            for name, names in members.items()
        }
        command(**values, **taken)

    with_groups.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_groups.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_groups
