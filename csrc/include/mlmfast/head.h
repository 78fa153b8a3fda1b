// The vocabulary head: logits = hidden weight^T + bias, reduced to what is asked of each target
// while a tile of logits is still in cache, so that the logits are stored only where they are asked for.
#pragma once

#include <cstdint>

#include "mlmfast/aligned_buffer.h"
#include "mlmfast/isa.h"
#include "mlmfast/logit_sums.h"
#include "mlmfast/matrix.h"
#include "mlmfast/weights.h"

namespace mlmfast {

struct HeadKernels;

// m rows and their t targets; row r owns targets target_offsets[r] .. target_offsets[r+1].
struct HeadInputs {
  const float* hidden;            // [m, H]
  int64_t num_rows;               // m
  const int32_t* target_ids;      // [t]
  const int64_t* target_offsets;  // [m + 1]
  const uint16_t* hidden_bf16 = nullptr;  // [m, H] in place of hidden
};

// Where results go, per target; a null pointer is not asked for. Natural logs. A target whose
// log-probability is NaN has rank and top_ids -1.
struct HeadOutputs {
  float* log_prob = nullptr;         // [t], always given
  float* logit = nullptr;            // [t]
  float* logits = nullptr;           // [t, V] of every class
  int32_t* rank = nullptr;           // [t] number of classes with a larger logit
  float* entropy = nullptr;          // [t] nats
  float* subset_log_prob = nullptr;  // [t] log of the probability of the flagged classes
  int64_t top_k = 0;
  int32_t* top_ids = nullptr;      // [t, top_k] most probable first, equal ones by id
  float* top_log_probs = nullptr;  // [t, top_k]

  // Per row; those of rows without targets are left as they are.
  LogitSums* sums = nullptr;          // [m] with rest_squares and total
  const float* thresholds = nullptr;  // [m] given, where tails are asked for
  TailSums* tails = nullptr;          // [m]
};

// Throws std::invalid_argument where the inputs would make score read or write out of bounds.
void check_head_inputs(const HeadInputs& inputs, int64_t num_targets, int64_t vocab_size);

// A weight [V, H] with optional bias [V] and optional subset flags [V], for one precision and instruction
// set. score may run in several threads at once, each with its own scratch.
// A row's results are the same bits whatever rows stand beside it.
class Head {
 public:
  // The weight is packed once, and scratch stays with the thread.
  Head(const ReadRows& weight, const float* bias, const uint8_t* subset, int64_t vocab_size,
       int64_t hidden_size, Precision precision, Isa isa);
  // The weight is packed a tile of classes at a time in every call, for weights that change and calls of many
  // rows. It and bias must stay.
  Head(const WeightView& weight, const float* bias, Precision precision, Isa isa);

  void score(const HeadInputs& inputs, const HeadOutputs& outputs) const;

  int64_t vocab_size() const { return vocab_size_; }
  int64_t hidden_size() const { return hidden_size_; }
  bool has_subset() const { return subset_penalty_.data() != nullptr; }
  Isa isa() const { return isa_; }

 private:
  class Pass;

  Head(int64_t vocab_size, int64_t hidden_size, Isa isa, const MatrixKernels& products, Linear decoder);

  int64_t vocab_size_, hidden_size_;
  Isa isa_;
  const HeadKernels& kernels_;
  const MatrixKernels& products_;
  bool packs_by_tile_ = false;
  WeightView weight_{};  // where packed by tile, and so is bias_
  const float* bias_ = nullptr;
  Linear decoder_;  // where packed once
  int64_t tile_columns_;          // columns whose weights stay in L2 while the rows pass
  AlignedBuffer subset_penalty_;  // [V rounded up to whole tiles], 0 for a flagged class, -inf for the others
};

}  // namespace mlmfast
