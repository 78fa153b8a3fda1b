#include "input_pool.h"

#include <algorithm>

namespace mlmfast {
namespace {

// Whether a token of the text is one that positions do not count.
bool skips_positions(const ModelSpec& spec, const RowBatch& batch, int64_t begin, int64_t length) {
  if (spec.position != Position::absolute || spec.position_skip_id < 0) return false;
  const int32_t* ids = batch.input_ids + begin;
  return std::find(ids, ids + length, spec.position_skip_id) != ids + length ||
         batch.mask_token_id == spec.position_skip_id;
}

}  // namespace

void InputPool::collect(const ModelSpec& spec, const RowBatch& batch, const int64_t* rows, int64_t num_rows,
                        const int64_t* row_starts) {
  inputs_.clear();
  input_of_token_.resize(row_starts[num_rows]);
  input_of_text_.assign(batch.num_texts, -1);
  masked_input_.assign(batch.text_offsets[batch.num_texts], -1);
  for (int64_t r = 0; r < num_rows; ++r) {
    const int64_t row = rows[r], text = batch.row_text[row];
    const int64_t begin = batch.text_offsets[text], length = batch.length(row);
    int32_t* input_of = input_of_token_.data() + row_starts[r];
    if (spec.token_dropout || skips_positions(spec, batch, begin, length)) {
      append_row(spec, batch, row, input_of);
      continue;
    }
    if (input_of_text_[text] < 0) {
      input_of_text_[text] = static_cast<int32_t>(inputs_.size());
      for (int64_t i = 0; i < length; ++i) append(spec, batch, batch.input_ids[begin + i], begin + i, i);
    }
    for (int64_t i = 0; i < length; ++i) input_of[i] = input_of_text_[text] + static_cast<int32_t>(i);
    for (int64_t m = batch.mask_offsets[row]; m < batch.mask_offsets[row + 1]; ++m) {
      const int32_t position = batch.mask_positions[m];
      int32_t& masked = masked_input_[begin + position];
      if (masked < 0) {
        masked = static_cast<int32_t>(inputs_.size());
        append(spec, batch, batch.mask_token_id, begin + position, position);
      }
      input_of[position] = masked;
    }
  }
}

void InputPool::append(const ModelSpec& spec, const RowBatch& batch, int32_t id, int64_t token, int64_t counted) {
  const int32_t type = batch.token_type_ids == nullptr ? 0 : batch.token_type_ids[token];
  inputs_.push_back({id, type, spec.position_offset + counted, 1.0f});
}

// A row that shares nothing: its tokens one by one.
void InputPool::append_row(const ModelSpec& spec, const RowBatch& batch, int64_t row, int32_t* input_of) {
  const int64_t begin = batch.text_offsets[batch.row_text[row]], length = batch.length(row), first = size();
  for (int64_t i = 0; i < length; ++i) {
    input_of[i] = static_cast<int32_t>(first + i);
    append(spec, batch, batch.input_ids[begin + i], begin + i, i);
  }
  Input* const inputs = inputs_.data() + first;
  for (int64_t m = batch.mask_offsets[row]; m < batch.mask_offsets[row + 1]; ++m) {
    inputs[batch.mask_positions[m]].id = batch.mask_token_id;
  }
  int64_t counted = 0, num_masked = 0;
  for (int64_t i = 0; i < length; ++i) {
    const bool skipped = spec.position_skip_id >= 0 && inputs[i].id == spec.position_skip_id;
    inputs[i].table_position = spec.position_offset + (skipped ? -1 : counted++);
    num_masked += inputs[i].id == spec.mask_token_id;
  }
  if (!spec.token_dropout) return;
  // Lin et al. 2023 (ESM-2): masks are zeroed and the rest scaled as in training, 0.15 * 0.8 masked.
  const float scale = (1.0f - 0.15f * 0.8f) / (1.0f - static_cast<float>(num_masked) / static_cast<float>(length));
  for (int64_t i = 0; i < length; ++i) inputs[i].scale = inputs[i].id == spec.mask_token_id ? 0.0f : scale;
}

void InputPool::embed(const EncoderModel& model, float* embedded) const {
  const ModelSpec& spec = model.spec;
  const int64_t size = spec.embedding_size;
  float* x = embedded;
  for (const Input& input : inputs_) {
    model.word_embeddings.read(input.id, x);
    if (spec.token_dropout) {
      for (int64_t k = 0; k < size; ++k) x[k] *= input.scale;
    }
    if (spec.type_vocab_size > 0) model.sequence.add(x, model.type_embeddings.data() + input.type * size, size, x);
    if (spec.position == Position::absolute) {
      model.sequence.add(x, model.position_embeddings.data() + input.table_position * size, size, x);
    }
    if (model.embedding_norm) model.embedding_norm->apply(model.sequence, x, size, x);
    x += size;
  }
}

}  // namespace mlmfast
