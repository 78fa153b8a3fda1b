"""Texts to tokens: Rust tokenizers in bulk, as columns."""

from mlmfast.tokenization.files import load_tokenizer
from mlmfast.tokenization.proteins import is_protein_vocabulary, prepare_protein
from mlmfast.tokenization.tokenizer import SpecialTokens, Tokenizer

__all__ = ["SpecialTokens", "Tokenizer", "is_protein_vocabulary", "load_tokenizer", "prepare_protein"]
