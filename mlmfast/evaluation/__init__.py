"""Evaluation of generated text: diversity, likeness to references, likelihood, and how its chains mixed."""

from mlmfast.evaluation.autocorrelation import autocorrelation, autocorrelation_time, effective_sample_size
from mlmfast.evaluation.chains import Chain, ChainFigures, TrailFigures, read_chains, trail_figures
from mlmfast.evaluation.energy_plot import plot_energies
from mlmfast.evaluation.likelihood import Likelihood, likelihood
from mlmfast.evaluation.overlap import Overlap, PooledBleu
from mlmfast.evaluation.trail import TrailRecord, read_trail
from mlmfast.evaluation.units import units_of

__all__ = [
    "Chain",
    "ChainFigures",
    "Likelihood",
    "Overlap",
    "PooledBleu",
    "TrailFigures",
    "TrailRecord",
    "autocorrelation",
    "autocorrelation_time",
    "effective_sample_size",
    "likelihood",
    "plot_energies",
    "read_chains",
    "read_trail",
    "trail_figures",
    "units_of",
]
