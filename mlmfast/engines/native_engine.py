"""Our own C++ core on a CPU: packed rows, no padding, no torch."""

from __future__ import annotations

from mlmfast import _core
from mlmfast.engines.base import ModelFiles, Outputs
from mlmfast.engines.self_check import fastest_exact
from mlmfast.errors import ModelError, SettingsError, UnsupportedModelError
from mlmfast.kernels.head import chosen_isa, has_matrix_units, target_outputs
from mlmfast.models.source import EMBEDDED
from mlmfast.types import JsonRecord, RowBatch, TargetOutputs

FAST = ("bf16x3", "bf16x4")
"""Precisions that may be exact, fastest first."""


class NativeEngine:
    """See engines.base.Engine."""

    @classmethod
    def fastest_exact(cls, files: ModelFiles) -> NativeEngine:
        """In the first of FAST that is exact for the model where this CPU has matrix units, else in float32.

        Raises what the constructor raises."""
        if not has_matrix_units():
            return cls(files)
        if files.source.folder in EMBEDDED.values():  # checked by the tests, so that they load quickly
            return cls(files, precision=FAST[0])
        return fastest_exact(files, lambda precision: cls(files, precision=precision), FAST)

    def __init__(self, files: ModelFiles, *, precision: str = "float32") -> None:
        """Raises UnsupportedModelError for a model this engine cannot run, ModelError for one not to be
        trusted, SettingsError for a precision or instruction set this CPU has no kernels for."""
        isa = chosen_isa()
        try:
            self._model = _core.Model(str(files.source.folder), precision, isa)
        except _core.UnsupportedModelError as error:
            raise UnsupportedModelError(str(error)) from error
        except _core.ModelError as error:
            raise ModelError(str(error)) from error
        except ValueError as error:
            raise SettingsError(f"the native engine: {error}") from error
        self._precision = precision
        self._isa = isa
        self._is_student = files.config.kind == "student"
        self.max_length: int = self._model.max_length
        self.max_batch_tokens = 4096
        self.max_workers: int | None = None
        self.max_immediate_tokens = 512

    def prepare_thread(self) -> None:
        """See engines.base.Engine. Nothing to do: each thread's scratch is made by its first batch."""

    def score(self, batch: RowBatch, outputs: Outputs) -> TargetOutputs:
        """See engines.base.Engine. Raises SettingsError for more than a student gives."""
        if self._is_student:
            outputs.require_values_alone()
        found = self._model.score(
            batch.input_ids,
            batch.text_offsets,
            batch.token_type_ids,
            batch.row_text,
            batch.mask_positions,
            batch.mask_offsets,
            batch.target_positions,
            batch.target_ids,
            batch.target_offsets,
            batch.mask_token_id,
            logit=outputs.logit,
            logits=outputs.logits,
            rank=outputs.rank,
            entropy=outputs.entropy,
            top_k=outputs.top_k,
        )
        return target_outputs(found)

    def describe(self) -> JsonRecord:
        """See engines.base.Engine."""
        return {
            "engine": "native",
            "precision": self._precision,
            "device": "cpu",
            "isa": self._isa,
            "versions": {},
        }
