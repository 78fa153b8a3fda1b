// What a batch must be held to before it is followed.
#pragma once

#include <cstdint>

#include "mlmfast/encoder.h"

namespace mlmfast {

// Throws std::invalid_argument where a batch would make an encoder read out of bounds: ids outside the
// vocabulary, empty or too long texts, positions outside their row, offsets that fall.
void check_row_batch(const RowBatch& batch, const ModelSpec& spec);

// How long the arrays of a RowBatch are: input_ids, mask_positions, and target_positions and target_ids.
struct BatchLengths {
  int64_t num_tokens;
  int64_t num_masks;
  int64_t num_targets;
};

// Throws std::invalid_argument unless the batch's offsets end at these lengths. Reads no more than that.
void check_batch_lengths(const RowBatch& batch, const BatchLengths& lengths);

// Throws std::invalid_argument unless 0 <= top_k <= vocab_size.
void check_top_k(int64_t top_k, int64_t vocab_size);

}  // namespace mlmfast
