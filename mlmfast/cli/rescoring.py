"""Lists and models as `rescore` and `tune` open them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from mlmfast.cli.option_groups import EngineOptions, ScoringOptions
from mlmfast.cli.rescoring_options import ListOptions, ModelsOptions, TextOptions
from mlmfast.errors import InputError, SettingsError
from mlmfast.rescoring.formats import FORMATS, detect_format, read_lists
from mlmfast.rescoring.formats.reading import OnError
from mlmfast.rescoring.language_model import LanguageModel
from mlmfast.rescoring.lists import NBestList
from mlmfast.rescoring.text_preparation import TextPreparation, read_word_map
from mlmfast.scorer import load

logger = logging.getLogger(__name__)

NO_MODEL = ["none"]


class ListInput:
    """The lists of an input; parts that are left out under on_error="skip" are logged and counted."""

    def __init__(self, source: str, options: ListOptions, on_error: OnError) -> None:
        """Raises SettingsError and InputError for an input whose format is unknown."""
        self._source = source
        self._options = options
        self._on_error: OnError = on_error
        self.format = options.format or detect_format(source)
        self.num_unreadable = 0

    def __iter__(self) -> Iterator[NBestList]:
        for item in self._read(self._on_error):
            if isinstance(item, InputError):
                self.num_unreadable += 1
                logger.warning("skipped: %s", item)
            else:
                yield item

    def count(self) -> int | None:
        """All hypotheses, if they can be read twice."""
        if self._source == "-":
            return None
        try:
            items = self._read("skip")
            return sum(len(item.hypotheses) for item in items if isinstance(item, NBestList))
        except InputError:  # met again, and raised, where it stands
            return None

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


def open_models(
    stack: ExitStack,
    models: ModelsOptions,
    scoring: ScoringOptions,
    engine: EngineOptions,
    text: TextOptions,
) -> list[LanguageModel]:
    """The models under their names, closed with `stack`. Raises what `load` raises."""
    chosen: list[str | None] = [*models.model] or [None]
    if models.model == NO_MODEL:
        chosen = []
    if len(chosen) > 1 and engine.revision is not None:
        raise SettingsError("--revision is of one model; with several, name folders")
    names = models.name or (
        ["mlm"] if len(chosen) == 1 else [f"mlm{number}" for number in range(1, len(chosen) + 1)]
    )
    if len(names) != len(chosen) or len(set(names)) < len(names):
        raise SettingsError(f"{len(chosen)} models and the names {names}: give each a name of its own")
    preparation = preparation_of(text)
    return [
        LanguageModel(
            stack.enter_context(load(model, **asdict(engine))), name, preparation, **asdict(scoring)
        )
        for model, name in zip(chosen, names, strict=True)
    ]


def preparation_of(text: TextOptions) -> TextPreparation:
    options = asdict(text)
    path: Path | None = options.pop("word_map")
    return TextPreparation(word_map={} if path is None else read_word_map(path), **options)
