"""What the operators of the packed encoder read: a batch on the device, tables, norms.

N tokens of S texts, n tokens of b packed rows, M masks, p places (distinct tokens with a target), t targets.
The pool holds the P distinct inputs of the first layer: copies of a text differ at their masks alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """A RowBatch on the device: texts once, rows and masks as positions. Contiguous, int32 unless said."""

    text_ids: Tensor
    """[N]"""
    text_types: Tensor | None
    """[N]; None: all 0."""
    text_offsets: Tensor
    """[S+1]"""
    row_text: Tensor
    """[b]"""
    row_starts: Tensor
    """[b+1], into the packed tokens."""
    mask_positions: Tensor
    """[M], from the start of the row; no position twice in a row."""
    mask_offsets: Tensor
    """[b+1]"""
    mask_token_id: int
    num_tokens: int
    """n"""
    longest_row: int
    """Tokens of it."""
    shares_inputs: bool
    """The pool is the N tokens of the texts, then the M masks; else it is the n packed tokens."""
    row_scale: Tensor | None
    """float32[b]: of token dropout; then the pool is not shared."""
    position_skip_id: int | None
    """Tokens of this id are not counted by positions, and stand at the row of the position table before the
    first token's; then the pool is not shared. None: all are counted."""
    place_token: Tensor
    """[p], ascending."""
    place_row: Tensor
    """[p]"""
    target_ids: Tensor
    """int64[t], sorted by place."""
    target_offsets: Tensor
    """int64[p+1]: the targets of each place."""

    @property
    def num_inputs(self) -> int:
        """P"""
        return len(self.text_ids) + len(self.mask_positions) if self.shares_inputs else self.num_tokens


@dataclass(frozen=True)
class Norm:
    """Layer normalisation over C columns (Ba et al. 2016, equation 4), in float32."""

    weight: Tensor
    """float32[C]"""
    bias: Tensor | None
    """float32[C]"""
    eps: float


@dataclass(frozen=True)
class EmbeddingTables:
    """The embeddings of an encoder, in the checkpoint's dtype each."""

    word: Tensor
    """[V, E]"""
    position: Tensor | None
    """[max_positions, E]"""
    token_type: Tensor | None
    """[types, E]"""
    position_offset: int
    """The first token's row of the position table."""
    dropout_id: int
    """Tokens of this id are zeroed under token dropout, and the others of row r scaled by row_scale[r]."""
    norm: Norm | None
