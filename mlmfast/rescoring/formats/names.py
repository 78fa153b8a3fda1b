"""Names of added scores: ones that a format can hold, and that take no other score's place."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from mlmfast.errors import OutputError, SettingsError
from mlmfast.io.lines import Source
from mlmfast.io.meta import read_meta
from mlmfast.rescoring.formats.base import Format
from mlmfast.rescoring.lists import NBestList

NAME = re.compile(r"[^\W\d_][\w.-]*")
RESERVED = frozenset({"text", "score", "first_pass", "first_pass_normalized"})


def check_names(names: Iterable[str], known: Format) -> None:
    """Raises SettingsError for a name that lists of this format cannot hold."""
    for name in names:
        if NAME.fullmatch(name) is None:
            raise SettingsError(
                f"{name!r} cannot name a score; take a letter, then letters, digits and any of _ . -"
            )
        if name in RESERVED | known.reserved:
            raise SettingsError(
                f"{name!r} cannot name a score: it is something else in {known.name} lists; take another name"
            )


def check_new(nbest: NBestList, names: Iterable[str], known: Format) -> None:
    """Raises SettingsError if a hypothesis has something under one of the names already."""
    for name in names:
        if any(known.holds(hypothesis, name) for hypothesis in nbest.hypotheses):
            raise SettingsError(
                f"list {nbest.id!r} has {name!r} already, which the new score would replace; "
                "name the score otherwise"
            )


def replaceable(source: Source | None, known: Format) -> frozenset[str]:
    """The scores that the run that wrote `source` added, as the meta beside it says, if new ones can take
    their place."""
    if not known.replaces or not isinstance(source, (str, Path)) or source == "-":
        return frozenset()
    try:
        meta = read_meta(Path(source))
    except OutputError:
        return frozenset()
    models = None if meta is None else meta.settings.get("models")
    return frozenset(models) if isinstance(models, dict) else frozenset()
