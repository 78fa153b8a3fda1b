// The encoder: rows of masked texts to the features that its head reads at the targets.
//
// Packed rows, no padding. The first layer's projections are shared by the masked copies of a text;
// the last layer runs only at the targets, but for keys and values; where positions do not turn keys, a row with one
// mask needs none (HiddenAttention). A row's features are the same bits whatever rows stand beside it.
#pragma once

#include <cstdint>
#include <memory>

#include "mlmfast/isa.h"
#include "mlmfast/matrix.h"
#include "mlmfast/model_spec.h"
#include "mlmfast/weights.h"

namespace mlmfast {

// Rows to forward: each distinct text once, rows as masks and targets on a text. CSR offsets throughout.
struct RowBatch {
  const int32_t* input_ids;       // [*] the texts' tokens, special tokens included
  const int64_t* text_offsets;    // [num_texts + 1]
  const int32_t* token_type_ids;  // [*] or null: all 0
  int64_t num_texts;

  const int32_t* row_text;  // [num_rows]
  int64_t num_rows;
  const int32_t* mask_positions;    // [*] within the row
  const int64_t* mask_offsets;      // [num_rows + 1]
  const int32_t* target_positions;  // [*] within the row
  const int32_t* target_ids;        // [*]
  const int64_t* target_offsets;    // [num_rows + 1]
  int32_t mask_token_id;

  int64_t num_targets() const { return target_offsets[num_rows]; }
  int64_t length(int64_t row) const {
    return text_offsets[row_text[row] + 1] - text_offsets[row_text[row]];
  }
};

struct EncoderModel;
struct EncoderWorkspaces;

class Encoder {
 public:
  // Packs the weights; `weights` is not needed afterwards.
  // Throws std::invalid_argument where this CPU or build has no kernels for the precision.
  Encoder(const ModelSpec& spec, const Weights& weights, Precision precision, Isa isa);
  ~Encoder();
  Encoder(Encoder&&) noexcept;

  // features [num_places, feature_size] of places: tokens given as row and position, in order of rows.
  // One thread a call; several threads may call at once.
  void encode(const RowBatch& batch, const int64_t* place_offsets, const int32_t* place_positions,
              float* features) const;

  const ModelSpec& spec() const;

 private:
  std::unique_ptr<EncoderModel> model_;
  std::unique_ptr<EncoderWorkspaces> workspaces_;
};

}  // namespace mlmfast
