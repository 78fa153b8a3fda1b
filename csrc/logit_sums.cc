#include "mlmfast/logit_sums.h"

#include <algorithm>
#include <cmath>

namespace mlmfast {

void merge(LogitSums& total, const LogitSums& part) {
  const float max = std::max(total.max, part.max);
  const auto rescaled = [max](const LogitSums& s) {
    if (s.max == max) return s;
    // exp(-104) is 0 in float32; the bound keeps 0 * -inf out of the sums.
    const float shift = std::max(-104.0f, s.max - max), factor = std::exp(shift), sum = s.num_max + s.rest;
    return LogitSums{max, 0, factor * sum, factor * (s.rest_weighted + shift * sum),
                     factor * factor * (s.num_max + s.rest_squares), s.total};
  };
  const LogitSums a = rescaled(total), b = rescaled(part);
  total = {max,
           a.num_max + b.num_max,
           a.rest + b.rest,
           a.rest_weighted + b.rest_weighted,
           a.rest_squares + b.rest_squares,
           a.total + b.total};
}

double log_sum_exp(const LogitSums& sums) { return sums.max + std::log1p(double{sums.num_max} - 1 + sums.rest); }

}  // namespace mlmfast
