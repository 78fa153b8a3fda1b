"""Tuning masked language models with scoring rules."""

from mlmfast.training.rows import TrainingRows, training_rows
from mlmfast.training.settings import MaskingSettings, RowSettings, ScheduleSettings, TrainingSettings

__all__ = [
    "MaskingSettings",
    "RowSettings",
    "ScheduleSettings",
    "TrainingRows",
    "TrainingSettings",
    "training_rows",
]
