"""Optimised operations on plain arrays, each beside a plain float64 twin in `reference`."""
