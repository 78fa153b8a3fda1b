#include "batch_checks.h"

#include <stdexcept>
#include <string>

namespace mlmfast {

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
