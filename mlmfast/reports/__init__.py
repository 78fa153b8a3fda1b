"""What a run found, as one HTML page that needs nothing else."""

from mlmfast.reports.contents import Report
from mlmfast.reports.page import render, require_packages

__all__ = ["Report", "render", "require_packages"]
