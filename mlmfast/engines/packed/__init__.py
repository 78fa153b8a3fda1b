"""Packed rows on a GPU: our own forward of the models that a ModelSpec can say."""
