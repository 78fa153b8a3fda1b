"""Chains from texts into an output, and the figures of the run."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

from mlmfast.cli.generate_options import SeedTextOptions
from mlmfast.cli.progress import NoProgress, ProgressBar
from mlmfast.errors import InputError
from mlmfast.generation import GenerationSettings, StartMaker, StartState, generate
from mlmfast.generation.output import OutputFormat, chain_lines
from mlmfast.io import InputRecord, ResumableOutput, StdoutOutput, read_records
from mlmfast.scorer import Scorer
from mlmfast.types import BoolArray, JsonRecord

ON_THE_COMMAND_LINE = 0
"""The line of a text that is in no file."""


def seed_records(source: str | None, given: SeedTextOptions) -> Iterator[InputRecord]:
    """The texts to start from: those of a file, or one. Raises InputError and SettingsError."""
    if source is not None:
        return read_records(source, input_format=given.input_format, field=given.field)
    return iter([InputRecord(ON_THE_COMMAND_LINE, given.text or "")])


class GenerationRun:
    """num_chains: in the output so far."""

    def __init__(
        self,
        scorer: Scorer,
        maker: StartMaker,
        settings: GenerationSettings,
        allowed: BoolArray,
        output_format: OutputFormat,
        num_together: int,
    ) -> None:
        self.num_chains = 0
        self._num_steps = 0
        self._num_steps_before = 0
        self._energy: float | None = None
        self._scorer, self._maker, self._settings = scorer, maker, settings
        self._allowed, self._format, self._num_together = allowed, output_format, num_together
        self._started = time.monotonic()

    def write_chains(
        self,
        records: Iterator[InputRecord],
        num: int,
        out: ResumableOutput | StdoutOutput,
        bar: ProgressBar | NoProgress,
    ) -> None:
        """Every chain not yet in the output, in order: `num` for each record. Raises InputError with the
        record's line."""
        self._go_on_from(out)
        waiting: deque[tuple[InputRecord, str]] = deque()

        def starts() -> Iterator[StartState]:
            chains = (record for record in records for _ in range(num))
            for chain, record in enumerate(chains):
                consumed = f"{chain} {record.canonical}"
                if chain < out.already_written:
                    out.skip(consumed)
                    bar.skip()
                    continue
                start = self._start(record, chain)
                waiting.append((record, consumed))
                yield start

        for states in generate(
            self._scorer,
            starts(),
            self._settings,
            allowed=self._allowed,
            first_chain=out.already_written,
            num_together=self._num_together,
        ):
            record, consumed = waiting.popleft()
            lines = chain_lines(states, self._scorer.files.tokenizer, self._format, start_id=record.id)
            self.num_chains += 1
            self._num_steps += states[-1].step
            if states[-1].energy is not None:
                self._energy = (self._energy or 0.0) + states[-1].energy
            out.write(lines, consumed, {"steps": self._num_steps, "energy": self._energy})
            bar.advance(states[-1].step)

    def summary(self) -> JsonRecord:
        """Figures over the whole output; seconds are those of this run."""
        return {
            "chains": self.num_chains,
            "steps": self._num_steps,
            "mean_energy": None if self._energy is None else self._energy / self.num_chains,
            "seconds": time.monotonic() - self._started,
        }

    def sentence(self) -> str:
        s = self.summary()
        chains = "chain" if s["chains"] == 1 else "chains"
        energy = "" if s["mean_energy"] is None else f"mean energy {s['mean_energy']:.2f}, "
        rate = (self._num_steps - self._num_steps_before) / max(s["seconds"], 1e-9)
        return (
            f"{s['chains']:,} {chains}, {s['steps']:,} steps, {energy}{s['seconds']:.1f} s "
            f"({rate:,.0f} steps/s)"
        )

    def _go_on_from(self, out: ResumableOutput | StdoutOutput) -> None:
        """Count on from what an output already holds."""
        if out.totals:
            self.num_chains = out.already_written
            self._num_steps = self._num_steps_before = int(out.totals["steps"])
            self._energy = out.totals["energy"]

    def _start(self, record: InputRecord, chain: int) -> StartState:
        if record.error is not None:
            raise record.error
        try:
            return self._maker.start(record.text or "", chain)
        except InputError as error:
            raise error if record.line == ON_THE_COMMAND_LINE else error.at(line=record.line) from None
