"""What a contestant raises that is not installed or cannot run here."""

from __future__ import annotations


class AbsentError(Exception):
    """The message is the reason that the results give."""
