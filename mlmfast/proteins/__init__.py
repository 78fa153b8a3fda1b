"""Protein variants: mutation strings scored with masked language models."""

from mlmfast.proteins.conventions import CONTEXTS, CONVENTIONS
from mlmfast.proteins.mutations import RESIDUES, Mutation, Variant, mutated, parse_variant
from mlmfast.proteins.variants import VariantScorer

__all__ = [
    "CONTEXTS",
    "CONVENTIONS",
    "RESIDUES",
    "Mutation",
    "Variant",
    "VariantScorer",
    "mutated",
    "parse_variant",
]
