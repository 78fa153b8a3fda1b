"""Lists from values in memory, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mlmfast.errors import SettingsError
from mlmfast.rescoring.lists import Hypothesis, NBestList


def list_in_memory(
    hypotheses: Iterable[str], scores: Iterable[float] | Mapping[str, Iterable[float]]
) -> NBestList:
    """A list in first-pass order.

    scores: a number for each hypothesis, in nats, or such by the name of the feature, `first_pass` among
    them. Raises SettingsError for hypotheses that are not str, scores that are not numbers, or other counts.
    """
    texts = several(hypotheses, "hypotheses")
    for place, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise SettingsError(f"hypothesis {place} is {text!r}, where a str was expected")
    named = scores if isinstance(scores, Mapping) else {"first_pass": scores}
    if "first_pass" not in named:
        raise SettingsError(
            f"there are scores {', '.join(map(repr, named)) or 'of no name'}, but no 'first_pass'"
        )
    features = {name: numbers(name, values) for name, values in named.items()}
    for name, values in features.items():
        if len(values) != len(texts):
            raise SettingsError(f"{len(texts)} hypotheses, but {len(values)} scores {name!r}")
    return NBestList(
        "in memory",
        tuple(
            Hypothesis(index + 1, text, {name: values[index] for name, values in features.items()})
            for index, text in enumerate(texts)
        ),
    )


def numbers(name: str, values: Iterable[Any]) -> list[float]:
    """The scores as float; NumPy's and torch's scalars are numbers, too."""
    found = []
    for place, value in enumerate(several(values, f"scores {name!r}"), 1):
        try:
            if isinstance(value, (bool, str, bytes)):
                raise TypeError
            found.append(float(value))
        except (TypeError, ValueError, OverflowError) as error:
            raise SettingsError(
                f"score {name!r} of hypothesis {place} is {value!r}; give a number"
            ) from error
    return found


def several(values: Any, what: str) -> tuple[Any, ...]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise SettingsError(f"{what} are {values!r}; give a sequence, one of each hypothesis")
    return tuple(values)
