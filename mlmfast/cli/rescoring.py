"""Lists and models as `rescore` and `tune` open them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

from mlmfast.cli.list_flags import ListFlags
from mlmfast.cli.option_groups import EngineOptions, ScoringOptions
from mlmfast.cli.rescoring_options import CascadeOptions, ListOptions, ModelsOptions, TextOptions
from mlmfast.errors import InputError, SettingsError
from mlmfast.io.lines import is_stream
from mlmfast.models import EMBEDDED_MODEL, EMBEDDED_STUDENT, embedded_for
from mlmfast.rescoring.cascade import Cascade
from mlmfast.rescoring.formats import FORMATS, detect_format, read_lists
from mlmfast.rescoring.formats.reading import OnError, default_style
from mlmfast.rescoring.formats.registry import format_named
from mlmfast.rescoring.language_model import LanguageModel
from mlmfast.rescoring.lists import NBestList
from mlmfast.rescoring.text_preparation import TextPreparation, read_word_map
from mlmfast.scorer import load

logger = logging.getLogger(__name__)

NO_MODEL = "none"


class ListInput:
    """The lists of an input; parts left out under on_error="skip" are logged and counted, as flags are."""

    def __init__(self, source: str, options: ListOptions, on_error: OnError) -> None:
        """Raises SettingsError and InputError for an input whose format is unknown."""
        self._source = source
        self._options = options
        self._on_error: OnError = on_error
        self.format = options.format or detect_format(source)
        self.num_unreadable = 0
        self.flags = ListFlags()

    def __iter__(self) -> Iterator[NBestList]:
        for item in self._read(self._on_error):
            if isinstance(item, InputError):
                self.num_unreadable += 1
                logger.warning("skipped: %s", item)
            else:
                self.flags.add(item)
                yield item
        self.flags.log()

    def count(self) -> int | None:
        """All hypotheses, if all that is read can be read twice."""
        if self._is_read_once():
            return None
        try:
            items = self._read("skip")
            return sum(len(item.hypotheses) for item in items if isinstance(item, NBestList))
        except InputError:  # met again, and raised, where it stands
            return None

    def check_references(self) -> None:
        """Reads all lists once if references belong to them by line, so that other numbers of them are an
        InputError before anything is scored. What can be read only once is checked at its end."""
        options = self._options
        if not options.references or self._is_read_once():
            return
        if (options.reference_style or default_style(format_named(self.format))) == "lines":
            for _ in self._read("skip"):
                pass

    def _is_read_once(self) -> bool:
        options = self._options
        sources = (self._source, *options.references, options.manifest or "")
        return any(is_stream(source) for source in sources)

    def unreadable_said(self) -> str:
        """The parts that were left out, as the end of an enumeration; nothing if there are none."""
        return f", {self.num_unreadable:,} left out as unreadable" if self.num_unreadable else ""

    def _read(self, on_error: OnError) -> Iterator[NBestList | InputError]:
        options = self._options
        return read_lists(
            self._source,
            self.format,
            on_error=on_error,
            references=options.references,
            reference_style=options.reference_style,
            nbest=options.nbest,
            lm_scale=options.lm_scale,
            length_power=options.length_power,
            manifest=options.manifest,
        )

    @property
    def file_format(self) -> str:
        """The format of an output for these lists."""
        return FORMATS[self.format].written_as or self.format


def named_models(models: ModelsOptions) -> dict[str, str | None]:
    """The folder or hub id of each model by its name, None for the embedded one. Raises SettingsError."""
    chosen: list[str | None] = [*models.model] or [None]
    if models.model == [NO_MODEL]:
        chosen = []
    elif NO_MODEL in models.model:
        raise SettingsError("--model none is for no model at all; give it once, without another model")
    names = models.name or (
        ["mlm"] if len(chosen) == 1 else [f"mlm{number}" for number in range(1, len(chosen) + 1)]
    )
    if len(names) != len(chosen) or len(set(names)) < len(names):
        raise SettingsError(f"{len(chosen)} models and the names {names}: give each a name of its own")
    return dict(zip(names, chosen, strict=True))


def open_models(
    stack: ExitStack,
    models: Mapping[str, str | None],
    scoring: ScoringOptions,
    engine: EngineOptions,
    text: TextOptions,
) -> list[LanguageModel]:
    """The models under their names, closed with `stack`. Raises what `load` raises."""
    if len(models) > 1 and engine.revision is not None:
        raise SettingsError("--revision is of one model; with several, name folders")
    preparation = preparation_of(text)
    return [
        LanguageModel(
            stack.enter_context(load(embedded_for(model, scoring.masking), **asdict(engine))),
            name,
            preparation,
            **asdict(scoring),
        )
        for name, model in models.items()
    ]


def open_cascade(
    stack: ExitStack,
    options: CascadeOptions,
    models: Mapping[str, str | None],
    scoring: ScoringOptions,
    engine: EngineOptions,
    text: TextOptions,
) -> Cascade | None:
    """The student before the last of the models, closed with `stack`; None if none is asked for.

    Its score has that model's name, ending in _student. Raises SettingsError for options that do not fit, and
    what `load` raises.
    """
    if options.cascade is None:
        if options.cascade_model is not None:
            raise SettingsError(
                "--cascade-model is for --cascade K; name how many of each list get exact scores"
            )
        return None
    if not models:
        raise SettingsError("--cascade saves rows of a language model, but --model is none; name one")
    name, model = list(models.items())[-1]
    student = options.cascade_model
    if student is None and model not in (None, EMBEDDED_MODEL):
        raise SettingsError(
            f"--cascade: {model} has no student that is known here; name one by --cascade-model"
        )
    (opened,) = open_models(
        stack,
        {f"{name}_student": student or EMBEDDED_STUDENT},
        replace(scoring, masking="student"),
        replace(engine, revision=None),
        text,
    )
    return Cascade(opened, options.cascade)


def preparation_of(text: TextOptions) -> TextPreparation:
    options = asdict(text)
    path: Path | None = options.pop("word_map")
    return TextPreparation(word_map={} if path is None else read_word_map(path), **options)
