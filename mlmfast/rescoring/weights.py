"""The terms of a combination with their weights, and the file that keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any, cast

import numpy as np

from mlmfast.errors import InputError, SettingsError
from mlmfast.io.json_text import to_json
from mlmfast.io.meta import settings_differences
from mlmfast.rescoring.combination import MISSING, Missing
from mlmfast.rescoring.normalisation import NOT_NORMALISED, Float64Array, Normalisation

FORMAT_VERSION = 1

TERM_KINDS = ("feature", "lm", "length")
LENGTHS = ("words", "characters")
MAX_WEIGHT = 1e9


@dataclass(frozen=True)
class Term:
    """One addend, weight * score / divisor.

    kind: `feature`, a first-pass score of the lists by its name; `lm`, a language model's score by the name
    the caller gave it; `length`, the number of `words` (the word-insertion bonus) or `characters`.
    weight: from -1e9 to 1e9, so that no total overflows.
    The length that normalises a feature is the number of white-space words, that of an LM its scored tokens.
    Raises SettingsError for what does not fit together.
    """

    kind: str
    name: str
    weight: float
    normalisation: Normalisation = NOT_NORMALISED

    def __post_init__(self) -> None:
        if self.kind not in TERM_KINDS:
            raise SettingsError(f"unknown kind of term {self.kind!r}; expected {', '.join(TERM_KINDS)}")
        if not isinstance(self.name, str):
            raise SettingsError(f"name of a term is {self.name!r}: expected a string")
        if isinstance(self.weight, bool) or not isinstance(self.weight, Real):
            raise SettingsError(f"weight of {self.name!r} is {self.weight!r}: expected a number")
        if not abs(self.weight) <= MAX_WEIGHT:
            raise SettingsError(
                f"weight of {self.name!r} is {self.weight}: expected a finite number, at most {MAX_WEIGHT:g} "
                "either way"
            )
        if self.kind == "length" and self.name not in LENGTHS:
            raise SettingsError(f"unknown length {self.name!r}; expected {' or '.join(LENGTHS)}")
        if self.kind == "length" and self.normalisation.kind != "none":
            raise SettingsError(f"length term {self.name!r}: a length is not normalised by itself")


FIRST_PASS = Term("feature", "first_pass", 1.0)


@dataclass(frozen=True)
class Weights:
    """A log-linear combination: the sum of its terms, added in their order.

    missing: where a hypothesis without a total goes, see `combine`. made_with: the settings the weights were
    tuned with (models, masking, text preparation, metric, ...), compared by `check`.
    Raises SettingsError for no term, or one named twice.
    """

    terms: tuple[Term, ...]
    missing: Missing = "first_pass_rank"
    made_with: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [(term.kind, term.name) for term in self.terms]
        if not names or len(set(names)) < len(names):
            raise SettingsError(f"terms {names}: expected at least one, each once")
        if self.missing not in MISSING:
            raise SettingsError(f"unknown missing={self.missing!r}; expected one of {', '.join(MISSING)}")

    @property
    def values(self) -> Float64Array:
        """float64[F], one weight per term."""
        return np.array([term.weight for term in self.terms], dtype=np.float64)

    def with_values(self, values: Float64Array) -> Weights:
        """The same terms with other weights, float64[F]."""
        terms = [replace(term, weight=float(value)) for term, value in zip(self.terms, values, strict=True)]
        return replace(self, terms=tuple(terms))

    def check(self, settings: dict[str, Any]) -> None:
        """Raises SettingsError if `settings` are not those the weights were tuned with."""
        differences = settings_differences(self.made_with, settings)
        if differences:
            raise SettingsError(
                f"the weights were tuned with other settings ({'; '.join(differences)}); "
                "use the same, or tune again"
            )

    def settings(self) -> dict[str, Any]:
        """The combination itself."""
        terms = [
            {"kind": t.kind, "name": t.name, "weight": t.weight, "normalisation": str(t.normalisation)}
            for t in self.terms
        ]
        return {"terms": terms, "missing": self.missing}

    def to_json(self) -> str:
        """The content of a weights file."""
        value = {"format_version": FORMAT_VERSION, **self.settings(), "made_with": self.made_with}
        return to_json(value, indented=True) + "\n"

    @classmethod
    def from_json(cls, content: str | bytes, *, where: str = "weights") -> Weights:
        """The weights that `to_json` wrote. Raises InputError, placed at `where`."""
        try:
            value = json.loads(content)
            version = value["format_version"]
            if version == FORMAT_VERSION:
                return parse_weights(value)
        except SettingsError as error:
            raise InputError(str(error), where=where) from error
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(
                "expected a weights file as written by `mlmfast tune`, "
                f"but it cannot be read as one ({type(error).__name__}: {error})",
                where=where,
            ) from error
        raise InputError(
            f"format version {version!r}, but this version reads {FORMAT_VERSION}; tune again", where=where
        )


def parse_weights(value: dict[str, Any]) -> Weights:
    terms = [
        Term(term["kind"], term["name"], term["weight"], Normalisation.parse(term["normalisation"]))
        for term in value["terms"]
    ]
    made_with = json_object(value["made_with"], "made_with")
    environment = json_object(made_with.get("environment", {}), "made_with.environment")
    json_object(environment.get("models", {}), "made_with.environment.models")
    return Weights(tuple(terms), cast(Missing, value["missing"]), made_with)


def json_object(value: Any, key: str) -> dict[str, Any]:
    """The value of a key, if it is an object. Raises SettingsError."""
    if not isinstance(value, dict):
        raise SettingsError(f"{key} is {json.dumps(value)}: expected an object, as `mlmfast tune` writes it")
    return value


def read_weights(path: Path) -> Weights:
    """The weights in the file `path`. Raises InputError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    return Weights.from_json(content, where=str(path))


def mlm_scoring(lm_weights: Mapping[str, float], normalisation: Normalisation = NOT_NORMALISED) -> Weights:
    """first_pass + sum over LMs of weight * lm / divisor, as mlm-scoring's `rescore` computes it: the weight
    of the first pass is 1, not the 1 - weight of its help text; `normalisation` (its --ln) is of the LMs."""
    lms = [Term("lm", name, weight, normalisation) for name, weight in lm_weights.items()]
    return Weights((FIRST_PASS, *lms))


def fairseq_mlm_scoring(
    lm: str, first_pass_weight: float, normalisation: Normalisation = NOT_NORMALISED
) -> Weights:
    """w * first_pass + (1 - w) * lm, as fairseq-mlm-scoring's `rescore` computes it; w is its `scale`."""
    first_pass = replace(FIRST_PASS, weight=first_pass_weight)
    return Weights((first_pass, Term("lm", lm, 1 - first_pass_weight, normalisation)))
