// Scores of a linear layer whose weight is used once: packed a tile of classes at a time, in every thread.
#pragma once

#include <cstdint>
#include <vector>

#include "mlmfast/head.h"
#include "mlmfast/scoring_rules.h"
#include "mlmfast/weights.h"

namespace mlmfast {

struct LinearScore {
  WeightView weight;  // [V, H]
  const float* bias;  // [V] or null
  std::vector<ScoringRule> rules;  // without smoothing
  Precision precision;
  Isa isa;
  int64_t num_threads = 1;  // which share out the rows, so that results do not depend on it
};

struct LinearScores {
  float* scores;  // [rules, t] negative losses
  double* lse;    // [m] or null; left as it is for rows without targets
  HeadOutputs head;  // logit must be asked for; sums and tails must not
};

// inputs as check_head_inputs takes them.
void linear_score(const LinearScore& call, const HeadInputs& inputs, const LinearScores& outputs);

}  // namespace mlmfast
