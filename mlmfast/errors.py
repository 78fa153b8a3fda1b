"""The exceptions a user can meet. Every message says where, what was expected, what came and what to do."""

from __future__ import annotations


class MlmfastError(Exception):
    """Base of every error this package raises on purpose."""


class InputError(MlmfastError, ValueError):
    """A text, record or file that cannot be scored as it stands.

    reason: what is wrong, without the place. line: the 1-based place of the record in its input, when
    there is one; `where` names any other place. The message starts with the place.
    """

    def __init__(self, reason: str, *, line: int | None = None, where: str | None = None) -> None:
        self.reason = reason
        self.line = line
        place = f"line {line}" if line is not None else where
        super().__init__(reason if place is None else f"{place}: {reason}")

    def at(self, *, line: int | None = None, where: str | None = None) -> InputError:
        """The same error, placed."""
        return type(self)(self.reason, line=line, where=where)


class TextTooLongError(InputError):
    """A text with more tokens than the model takes."""


class ModelError(MlmfastError):
    """A model that cannot be found, read or trusted: no weights, no head, wrong kind."""


class UnsupportedModelError(ModelError):
    """A model that may be sound, but that the chosen engine cannot run."""


class SettingsError(MlmfastError, ValueError):
    """Options that are unknown or do not fit together or do not fit the model."""


class OutputError(MlmfastError):
    """An output file that cannot be written or resumed as asked."""


class TrainingError(MlmfastError):
    """A training run that cannot go on: its loss, gradient or weights are not finite, or it has no target."""


class MissingExtraError(MlmfastError, ImportError):
    """A feature whose optional dependency is not installed; the message names the extra."""
