// What a scoring rule needs of a row of logits.
#pragma once

#include <cstdint>
#include <limits>

namespace mlmfast {

// Over the logits z of a row, with e = exp(z - max). The classes at the max are counted apart, so that what they leave to
// the others keeps its digits. The lowest finite max stands for "nothing yet", so that a run of -inf does not
// become NaN.
struct LogitSums {
  float max = std::numeric_limits<float>::lowest();
  float num_max = 0;        // classes at the max
  float rest = 0;           // sum of e over the others
  float rest_weighted = 0;  // of e (z - max), from which the entropy follows
  float rest_squares = 0;   // of e^2
  double total = 0;         // of z
};

// Over the logits of a row below a threshold.
struct TailSums {
  int64_t count = 0;
  double sum = 0;
};

// Two disjoint sets of classes as one.
void merge(LogitSums& total, const LogitSums& part);

double log_sum_exp(const LogitSums& sums);

}  // namespace mlmfast
