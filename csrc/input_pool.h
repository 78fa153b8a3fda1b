// The distinct inputs of an encoder's first layer: the copies of a text differ at their masks alone.
#pragma once

#include <cstdint>
#include <vector>

#include "encoder_model.h"
#include "mlmfast/encoder.h"

namespace mlmfast {

// Memory grows to the largest block of rows and stays.
class InputPool {
 public:
  // Takes the inputs of rows [num_rows] of the batch, whose tokens start at row_starts [num_rows + 1].
  void collect(const ModelSpec& spec, const RowBatch& batch, const int64_t* rows, int64_t num_rows,
               const int64_t* row_starts);

  int64_t size() const { return static_cast<int64_t>(inputs_.size()); }
  // The input of a token of the rows.
  int64_t of_token(int64_t token) const { return input_of_token_[token]; }

  // embedded [size(), E]: word, type and position embeddings, normed where the model does that.
  void embed(const EncoderModel& model, float* embedded) const;

 private:
  struct Input {
    int32_t id, type;
    int64_t table_position;  // row of the position table
    float scale;             // of the word embedding
  };

  void append(const ModelSpec& spec, const RowBatch& batch, int32_t id, int64_t token, int64_t counted);
  void append_row(const ModelSpec& spec, const RowBatch& batch, int64_t row, int32_t* input_of);

  std::vector<Input> inputs_;
  std::vector<int32_t> input_of_token_;
  std::vector<int32_t> input_of_text_;  // per text of the batch: its first input, -1 if not yet in the pool
  std::vector<int32_t> masked_input_;   // per text token: the input of its masked copy, or -1
};

}  // namespace mlmfast
