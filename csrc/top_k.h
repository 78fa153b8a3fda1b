// The k largest logits of a row, kept while its tiles pass.
#pragma once

#include <cstdint>

#include "cpu/head_kernels.h"

namespace mlmfast {

// Largest first. Candidates come in the order of their ids, so among equal ones the lower id stays ahead.
class TopK {
 public:
  // logits and ids: room for k entries.
  TopK(float* logits, int32_t* ids, int64_t k) : logits_(logits), ids_(ids), k_(k) {}

  // Takes the logits of the classes first_id .. first_id + size. Padding, -inf and last, never enters:
  // k real classes stand before it.
  void consider(const HeadKernels& kernels, const float* logits, int64_t size, int64_t first_id) {
    if (k_ == 0) return;
    int64_t i = 0;
    for (; i < size && count_ < k_; ++i) insert(logits[i], first_id + i, count_++);
    while ((i = kernels.find_greater(logits, i, size, logits_[k_ - 1])) < size) {
      insert(logits[i], first_id + i, k_ - 1);
      ++i;
    }
  }

  float logit(int64_t place) const { return logits_[place]; }
  int32_t id(int64_t place) const { return ids_[place]; }

 private:
  void insert(float logit, int64_t id, int64_t place) {
    for (; place > 0 && logits_[place - 1] < logit; --place) {
      logits_[place] = logits_[place - 1];
      ids_[place] = ids_[place - 1];
    }
    logits_[place] = logit;
    ids_[place] = static_cast<int32_t>(id);
  }

  float* logits_;
  int32_t* ids_;
  int64_t k_;
  int64_t count_ = 0;
};

}  // namespace mlmfast
