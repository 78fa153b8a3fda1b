#include "batch_checks.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace mlmfast {
namespace {

[[noreturn]] void reject(const std::string& what) { throw std::invalid_argument(what); }

void check_offsets(const char* name, const int64_t* offsets, int64_t count) {
  if (offsets[0] != 0 || !std::is_sorted(offsets, offsets + count + 1)) {
    reject(std::string(name) + " must start at 0 and never fall");
  }
}

}  // namespace

void check_row_batch(const RowBatch& batch, const ModelSpec& spec) {
  check_offsets("text_offsets", batch.text_offsets, batch.num_texts);
  check_offsets("mask_offsets", batch.mask_offsets, batch.num_rows);
  check_offsets("target_offsets", batch.target_offsets, batch.num_rows);
  const auto check_ids = [](const char* name, const int32_t* ids, int64_t count, int64_t limit) {
    for (int64_t i = 0; i < count; ++i) {
      if (ids[i] < 0 || ids[i] >= limit) {
        reject(std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(ids[i]) +
               ", expected 0 to " + std::to_string(limit - 1));
      }
    }
  };
  const int64_t num_tokens = batch.text_offsets[batch.num_texts];
  check_ids("input_ids", batch.input_ids, num_tokens, spec.vocab_size);
  check_ids("target_ids", batch.target_ids, batch.num_targets(), spec.vocab_size);
  check_ids("row_text", batch.row_text, batch.num_rows, batch.num_texts);
  if (batch.token_type_ids != nullptr) {
    check_ids("token_type_ids", batch.token_type_ids, num_tokens, std::max<int64_t>(1, spec.type_vocab_size));
  }
  const bool has_masks = batch.mask_offsets[batch.num_rows] > 0;
  if (has_masks) check_ids("mask_token_id", &batch.mask_token_id, 1, spec.vocab_size);
  for (int64_t t = 0; t < batch.num_texts; ++t) {
    const int64_t length = batch.text_offsets[t + 1] - batch.text_offsets[t];
    if (length < 1 || length > spec.max_length) {
      reject("text " + std::to_string(t) + " has " + std::to_string(length) + " tokens, expected 1 to " +
             std::to_string(spec.max_length));
    }
  }
  for (int64_t r = 0; r < batch.num_rows; ++r) {
    const int64_t masks = batch.mask_offsets[r], targets = batch.target_offsets[r];
    check_ids("mask_positions", batch.mask_positions + masks, batch.mask_offsets[r + 1] - masks, batch.length(r));
    check_ids("target_positions", batch.target_positions + targets, batch.target_offsets[r + 1] - targets,
              batch.length(r));
  }
}

void check_batch_lengths(const RowBatch& batch, const BatchLengths& lengths) {
  const auto check_end = [](const char* name, int64_t end, const char* counted, int64_t count) {
    if (end == count) return;
    throw std::invalid_argument(std::string(name) + " must end at the number of " + counted + ", " +
                                std::to_string(count) + ", got " + std::to_string(end));
  };
  check_end("text_offsets", batch.text_offsets[batch.num_texts], "input_ids", lengths.num_tokens);
  check_end("mask_offsets", batch.mask_offsets[batch.num_rows], "mask_positions", lengths.num_masks);
  check_end("target_offsets", batch.target_offsets[batch.num_rows], "target_ids", lengths.num_targets);
}

void check_top_k(int64_t top_k, int64_t vocab_size) {
  if (top_k >= 0 && top_k <= vocab_size) return;
  throw std::invalid_argument("top_k must be between 0 and " + std::to_string(vocab_size) + ", got " +
                              std::to_string(top_k));
}

}  // namespace mlmfast
