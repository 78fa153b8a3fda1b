"""The packed engine's layout of a batch, and the inputs made from it, against loops over the rows."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch
from random_batches import PlainRow, plain_rows, random_batch
from tiny_models import MODELS
from torch import Tensor

from mlmfast import _core
from mlmfast.engines.packed.layout import ALIGNMENT, dropout_scale, host_layout
from mlmfast.engines.packed.spec import EncoderSpec
from mlmfast.kernels import encoder_torch
from mlmfast.kernels.encoder_inputs import EmbeddingTables, Layout, Norm
from mlmfast.scheduling.batches import expand
from mlmfast.types import RowBatch

CPU = torch.device("cpu")
PAD, MASK = 1, 4
OFFSET = 2
SPEC = replace(EncoderSpec.of(_core.read_encoder(str(MODELS / "bert"))["spec"]), position_offset=OFFSET)
SPECS = {
    "shared": SPEC,
    "skipping": replace(SPEC, position_skip_id=PAD),
    "dropout": replace(SPEC, token_dropout=True, mask_token_id=MASK),
    "both": replace(SPEC, position_skip_id=PAD, token_dropout=True, mask_token_id=MASK),
}
BATCHES = {
    "ragged": random_batch([7, 1, 30, 2, 12], 17, with_types=True),
    "one token": random_batch([1], 1, masked=1.0, seed=1),
    "no masks": random_batch([5, 9], 2, masked=0.0, seed=2),
    "all masked": random_batch([5, 9], 6, masked=1.0, seed=3),
    "few ids": random_batch([9, 1, 20], 30, vocab_size=6, with_types=True, seed=5),
    "masked by padding": random_batch([8, 3], 9, mask_id=PAD, seed=4),
}
every_batch = pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
every_spec = pytest.mark.parametrize("kind", SPECS)


def make_tables(dtype: torch.dtype = torch.float32, *, bare: bool = False) -> EmbeddingTables:
    torch.manual_seed(0)
    return EmbeddingTables(
        word=torch.randn(50, 12).to(dtype),
        position=None if bare else torch.randn(40, 12).to(dtype),
        token_type=None if bare else torch.randn(2, 12).to(dtype),
        position_offset=OFFSET,
        dropout_id=MASK,
        norm=None if bare else Norm(torch.randn(12), torch.randn(12), 1e-5),
    )


def layout_of(batch: RowBatch, spec: EncoderSpec) -> Layout:
    return host_layout(batch, spec).on_device(CPU)


def embedded(layout: Layout, tables: EmbeddingTables) -> Tensor:
    """float32[n, E], of the packed tokens."""
    pool = encoder_torch.embed_inputs(layout, tables)
    assert pool.shape == (layout.num_inputs, tables.word.shape[1])
    assert pool.dtype == torch.float32
    if not layout.shares_inputs:
        return pool
    return encoder_torch.expand_rows(pool, encoder_torch.expand_index(layout))


def plainly_embedded(row: PlainRow, spec: EncoderSpec, tables: EmbeddingTables) -> Tensor:
    vectors, counted = [], 0
    share = row.ids.count(MASK) / len(row.ids)
    for id, type in zip(row.ids, row.types, strict=True):
        x = tables.word[id].double()
        if spec.token_dropout:
            x = x * 0 if id == MASK else x * (1 - 0.15 * 0.8) / (1 - share)
        if tables.token_type is not None:
            x = x + tables.token_type[type].double()
        if tables.position is not None:
            position = OFFSET - 1 if id == spec.position_skip_id else OFFSET + counted
            x = x + tables.position[position].double()
        counted += id != spec.position_skip_id
        vectors.append(x)
    x = torch.stack(vectors)
    if tables.norm is not None and tables.norm.bias is not None:
        variance, mean = torch.var_mean(x, dim=1, correction=0, keepdim=True)
        x = (x - mean) / (variance + tables.norm.eps).sqrt() * tables.norm.weight + tables.norm.bias
    return x


@every_batch
def test_rows_places_and_targets(batch: RowBatch) -> None:
    host = host_layout(batch, SPEC)
    layout, order = host.on_device(CPU), host.order
    rows = plain_rows(batch)
    starts = np.cumsum([0, *(len(row.ids) for row in rows)])
    assert layout.row_starts.tolist() == starts.tolist()
    assert layout.num_tokens == starts[-1]
    assert layout.longest_row == max(len(row.ids) for row in rows)
    places = [sorted({position for position, _ in row.targets}) for row in rows]
    assert layout.place_row.tolist() == [r for r, positions in enumerate(places) for _ in positions]
    assert layout.place_token.tolist() == [
        starts[r] + i for r, positions in enumerate(places) for i in positions
    ]
    targets = [(starts[r] + i, id) for r, row in enumerate(rows) for i, id in row.targets]
    of_place = torch.repeat_interleave(layout.target_offsets.diff())
    found = list(zip(layout.place_token[of_place].tolist(), layout.target_ids.tolist(), strict=True))
    assert found == [targets[t] for t in order]
    assert sorted(order) == list(range(len(targets)))


@every_batch
@every_spec
def test_tensors_are_as_kernels_want_them(batch: RowBatch, kind: str) -> None:
    layout = layout_of(batch, SPECS[kind])
    tensors = {name: value for name, value in vars(layout).items() if isinstance(value, Tensor)}
    assert len(tensors) >= 10
    for name, tensor in tensors.items():
        wide = {"target_ids": torch.int64, "target_offsets": torch.int64, "row_scale": torch.float32}
        assert tensor.dtype == wide.get(name, torch.int32), name
        assert tensor.is_contiguous()
        assert len(tensor) == 0 or tensor.data_ptr() % ALIGNMENT == 0


@every_batch
@every_spec
@pytest.mark.parametrize("bare", [False, True])
def test_inputs_are_those_of_the_rows(batch: RowBatch, kind: str, bare: bool) -> None:
    spec, tables = SPECS[kind], make_tables(bare=bare)
    expected = torch.cat([plainly_embedded(row, spec, tables) for row in plain_rows(batch)])
    torch.testing.assert_close(
        embedded(layout_of(batch, spec), tables).double(), expected, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_tables_of_low_precision_are_added_in_float32(dtype: torch.dtype) -> None:
    batch, tables = BATCHES["ragged"], make_tables(dtype)
    raised = replace(
        tables, **{name: getattr(tables, name).float() for name in ("word", "position", "token_type")}
    )
    layout = layout_of(batch, SPEC)
    torch.testing.assert_close(embedded(layout, tables), embedded(layout, raised), rtol=0, atol=0)


@every_batch
def test_the_pool_holds_each_text_once(batch: RowBatch) -> None:
    layout = layout_of(batch, SPEC)
    assert layout.shares_inputs
    assert layout.num_inputs == len(batch.input_ids) + len(batch.mask_positions)
    index = encoder_torch.expand_index(layout)
    ids = torch.cat([layout.text_ids, torch.full_like(layout.mask_positions, batch.mask_token_id)])
    assert ids[index].tolist() == expand(batch).input_ids.tolist()


def test_only_rows_with_skipped_tokens_are_not_shared() -> None:
    spec = SPECS["skipping"]
    batch = BATCHES["ragged"]
    assert PAD in batch.input_ids
    assert not layout_of(batch, spec).shares_inputs
    without = replace(batch, input_ids=np.where(batch.input_ids == PAD, PAD + 1, batch.input_ids))
    assert layout_of(without, spec).shares_inputs
    assert not layout_of(replace(without, mask_token_id=PAD), spec).shares_inputs
    rotary = replace(spec, position="rotary")
    assert layout_of(batch, rotary).shares_inputs


MANY_MASKS = {
    "some": random_batch([7, 1, 30, 2, 12], 60, vocab_size=6, seed=1),
    "all": random_batch([7, 1, 30, 2, 12], 60, vocab_size=6, masked=1.0, seed=2),
    "none": random_batch([7, 1, 30, 2, 12], 60, vocab_size=6, masked=0.0, seed=3),
    "of another id": random_batch([7, 1, 30, 2, 12], 60, vocab_size=6, mask_id=3, seed=4),
    "of texts of masks": replace(
        random_batch([7, 1], 60, vocab_size=6, seed=5), input_ids=np.full(8, MASK, dtype=np.int32)
    ),
}


@pytest.mark.parametrize("batch", MANY_MASKS.values(), ids=MANY_MASKS)
def test_token_dropout_counts_the_masks_of_the_rows(batch: RowBatch) -> None:
    shares = [np.float32(row.ids.count(MASK)) / np.float32(len(row.ids)) for row in plain_rows(batch)]
    expected = [np.float32(1) if share == 1 else np.float32(1 - 0.15 * 0.8) / (1 - share) for share in shares]
    found = dropout_scale(batch, SPECS["dropout"])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.array(expected, dtype=np.float32))


def test_masks_of_such_batches_fall_on_masks_of_the_texts() -> None:
    batch = MANY_MASKS["some"]
    masked_text = np.repeat(batch.row_text, np.diff(batch.mask_offsets))
    before = batch.input_ids[batch.text_offsets[masked_text] + batch.mask_positions]
    assert (before == MASK).any()
    assert (before != MASK).any()
    assert np.diff(batch.mask_offsets).max() > 1
    assert np.diff(batch.mask_offsets).min() == 0


@pytest.mark.parametrize("kind", ["skipping", "dropout", "both"])
def test_copies_are_never_laid_out_on_the_host(kind: str) -> None:
    """Less than a byte of each packed token, whatever is counted."""
    batch = random_batch([500] * 2, 400, masked=0.01, most_targets=1)
    assert {PAD, MASK} <= set(batch.input_ids.tolist())
    tracemalloc.start()
    try:
        host_layout(batch, SPECS[kind])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < batch.num_tokens
