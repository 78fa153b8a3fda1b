"""What a run of a sampler does, checked."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from numbers import Real

from mlmfast.energies import KINDS
from mlmfast.errors import SettingsError
from mlmfast.plans import check_whole

SAMPLERS = ("gibbs", "sequential", "parallel", "block", "mask_predict", "mh")
DEFAULT_SWEEPS = 10
DEFAULT_MASK_PREDICT_STEPS = 10
DEFAULT_BLOCK_SIZE = 3


@dataclass(frozen=True)
class GenerationSettings:
    """How each chain goes. Raises SettingsError for what is unknown or does not fit together.

    sampler: see `mlmfast.generation.samplers`. sweeps: a sweep is one step per free position (gibbs,
    sequential, mh), one step (parallel), or ceil(free / block_size) steps (block); steps: in place of sweeps,
    and the only choice for mask_predict; neither: 10 sweeps, or 10 steps of mask_predict.
    block_size: positions of a step of block, of no other sampler; 3 if not given. mask_sampled: whether a
    position is masked when its token is drawn; always so in mask_predict and mh.
    temperature: logits are divided by it. top_k, then top_p: only the k most probable tokens, and of these
    the smallest set whose mass reaches p. greedy: the most probable token; the default of mask_predict alone.
    burn_in: steps that draw from the full distribution, at the temperature, before top_k, top_p or greedy
    begin. energy: of every recorded state, `raw` or `norm` (see `mlmfast.energies`), and for mh of its target
    (`raw` if not given). record_every: steps between recorded states, from step 0 on; None: the last alone.
    """

    sampler: str = "gibbs"
    sweeps: int | None = None
    steps: int | None = None
    block_size: int | None = None
    mask_sampled: bool = True
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    greedy: bool | None = None
    burn_in: int = 0
    energy: str | None = None
    record_every: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, expected in (("sampler", SAMPLERS), ("energy", (None, *KINDS))):
            if (value := getattr(self, name)) not in expected:
                known = ", ".join(filter(None, expected))
                raise SettingsError(f"unknown {name} {value!r}; expected one of {known}")
        for name in ("sweeps", "steps", "block_size", "top_k", "record_every"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1)
        for name in ("burn_in", "seed"):
            check_whole(name, getattr(self, name), 0)
        for name, switches in (("mask_sampled", (True, False)), ("greedy", (None, True, False))):
            if not any(getattr(self, name) is switch for switch in switches):
                raise SettingsError(f"{name} is {getattr(self, name)!r:.40}; expected True or False")
        if not _is_number(self.temperature) or not 0 < self.temperature <= sys.float_info.max:
            raise SettingsError(f"temperature is {self.temperature!r}; expected a number above 0")
        if self.top_p is not None and not (_is_number(self.top_p) and 0 < self.top_p <= 1):
            raise SettingsError(f"top_p is {self.top_p!r}; expected above 0, to 1")
        if self.greedy is None:
            object.__setattr__(self, "greedy", self.sampler == "mask_predict")
        if self.energy is None and self.sampler == "mh":
            object.__setattr__(self, "energy", "raw")
        if self.block_size is None and self.sampler == "block":
            object.__setattr__(self, "block_size", DEFAULT_BLOCK_SIZE)
        self._check_length()
        self._check_distribution()

    def num_steps(self, num_free: int) -> int:
        """Steps of a chain with so many free positions."""
        if num_free == 0:
            return 0
        if self.steps is not None:
            return self.steps
        if self.sampler == "mask_predict":
            return DEFAULT_MASK_PREDICT_STEPS
        at_once = num_free if self.sampler == "parallel" else self.block_size or 1
        per_sweep = -(-num_free // at_once)
        return per_sweep * (DEFAULT_SWEEPS if self.sweeps is None else self.sweeps)

    def _check_length(self) -> None:
        if self.sweeps is not None and self.steps is not None:
            raise SettingsError(f"sweeps {self.sweeps} and steps {self.steps}: a run has one; leave one out")
        if self.sampler == "mask_predict" and self.sweeps is not None:
            raise SettingsError("sweeps: mask_predict has none, as it ends with all filled; give steps")
        if self.block_size is not None and self.sampler != "block":
            raise SettingsError(
                f"block_size {self.block_size} is of block alone, not {self.sampler}; leave it out"
            )

    def _check_distribution(self) -> None:
        truncated = self.top_k is not None or self.top_p is not None
        if not self.mask_sampled and self.sampler in ("mask_predict", "mh"):
            raise SettingsError(
                f"mask_sampled=False: {self.sampler} draws at masked positions alone; leave it out"
            )
        if self.greedy and self.sampler == "mh":
            raise SettingsError("greedy: mh needs proposals that are drawn; leave it out")
        if self.greedy and truncated:
            raise SettingsError(
                "top_k and top_p are for tokens that are drawn, but greedy takes the most probable; leave "
                "them out, or say greedy=False (it is True by default for mask_predict)"
            )
        if self.burn_in and not (self.greedy or truncated):
            raise SettingsError(
                f"burn_in {self.burn_in}: nothing begins after it; give top_k, top_p or greedy, or leave it "
                "out"
            )
        any_length = self.steps is not None or self.sampler in ("parallel", "mask_predict")
        if any_length and self.burn_in > (num_steps := self.num_steps(1)):
            raise SettingsError(f"burn_in is {self.burn_in}, but the run has only {num_steps} steps")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
