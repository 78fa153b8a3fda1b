"""What a trail says of its chains: acceptance and edit rates, energies, how well they mix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from mlmfast.errors import InputError
from mlmfast.evaluation.autocorrelation import autocorrelation, autocorrelation_time
from mlmfast.evaluation.trail import TrailRecord


@dataclass
class Chain:
    """One chain, of which only the last state is kept.

    num_proposals: records that say whether their proposal was accepted. num_moves: records with one before
    them; num_edits: those whose state differs from the one before.
    """

    chain: int
    burn_in: int = 0
    num_records: int = 0
    num_proposals: int = 0
    num_accepted: int = 0
    num_moves: int = 0
    num_edits: int = 0
    steps: list[int] = field(default_factory=list)
    energies: list[float] = field(default_factory=list)
    state: str | tuple[str | int, ...] | None = None

    def add(self, record: TrailRecord) -> None:
        """Raises InputError if a record has no energy after one that has; a state with masks has none yet."""
        if record.energy is None and self.steps:
            raise InputError(
                f"chain {self.chain}: step {record.step} has no energy, unlike step {self.steps[-1]}; once a "
                "state of a chain has one, give those of all that follow"
            )
        if record.energy is not None:
            self.steps.append(record.step)
            self.energies.append(record.energy)
        if record.step >= self.burn_in:
            self.num_records += 1
            if record.accepted is not None:
                self.num_proposals += 1
                self.num_accepted += record.accepted
            if self.state is not None:
                self.num_moves += 1
                self.num_edits += record.state != self.state
        self.state = record.state

    def figures(self, num_lags: int) -> ChainFigures:
        energies = np.array(self.energies)[np.array(self.steps) >= self.burn_in]
        correlations = autocorrelation(energies)
        time = None if correlations is None else autocorrelation_time(correlations)
        return ChainFigures(
            chain=self.chain,
            num_records=self.num_records,
            acceptance_rate=rate(self.num_accepted, self.num_proposals),
            edit_rate=rate(self.num_edits, self.num_moves),
            mean_energy=float(energies.mean()) if len(energies) else None,
            autocorrelation=None if correlations is None else correlations[1 : num_lags + 1].tolist(),
            autocorrelation_time=time,
            effective_sample_size=None if time is None else len(energies) / time,
        )


@dataclass(frozen=True)
class ChainFigures:
    """Of the records of one chain from burn-in on; None where there is nothing to tell.

    acceptance_rate: accepted of all proposals. edit_rate: records whose state differs from the one before (a
    proposal that equals the state may be accepted, and is no edit). autocorrelation: of the energies at lags
    1, 2, ...; autocorrelation_time and effective_sample_size: in records, see `autocorrelation`; None for a
    chain of fewer than 4 energies, or of one energy throughout, which has not mixed at all.
    """

    chain: int
    num_records: int
    acceptance_rate: float | None
    edit_rate: float | None
    mean_energy: float | None
    autocorrelation: list[float] | None
    autocorrelation_time: float | None
    effective_sample_size: float | None


@dataclass(frozen=True)
class TrailFigures:
    """Of all chains: rates over all their records, and the sum of the effective sample sizes, in which a
    chain without one counts as 0; None if no chain has one."""

    num_chains: int
    num_records: int
    acceptance_rate: float | None
    edit_rate: float | None
    mean_energy: float | None
    effective_sample_size: float | None
    chains: list[ChainFigures]


def read_chains(records: Iterable[TrailRecord], *, burn_in: int = 0) -> list[Chain]:
    """The chains of a trail in the order of their numbers; steps below burn_in do not count.

    Raises InputError if there is no record, or a chain ends before burn_in.
    """
    chains: dict[int, Chain] = {}
    for record in records:
        chains.setdefault(record.chain, Chain(record.chain, burn_in)).add(record)
    if not chains:
        raise InputError("the trail is empty; expected a JSON object per line")
    for chain in chains.values():
        if not chain.num_records:
            raise InputError(f"chain {chain.chain} ends before step {burn_in}; take a smaller burn-in")
    return [chains[number] for number in sorted(chains)]


def trail_figures(chains: list[Chain], *, num_lags: int = 10) -> TrailFigures:
    """The figures of chains read by `read_chains`."""
    figures = [chain.figures(num_lags) for chain in chains]
    sizes = [found.effective_sample_size for found in figures]
    known = [size for size in sizes if size is not None]
    energies = [
        energy
        for chain in chains
        for step, energy in zip(chain.steps, chain.energies, strict=True)
        if step >= chain.burn_in
    ]
    return TrailFigures(
        num_chains=len(chains),
        num_records=sum(chain.num_records for chain in chains),
        acceptance_rate=rate(sum(c.num_accepted for c in chains), sum(c.num_proposals for c in chains)),
        edit_rate=rate(sum(c.num_edits for c in chains), sum(c.num_moves for c in chains)),
        mean_energy=float(np.mean(energies)) if energies else None,
        effective_sample_size=sum(known) if known else None,
        chains=figures,
    )


def rate(part: int, whole: int) -> float | None:
    return part / whole if whole else None
