#include "mlmfast/linear_score.h"

#include <algorithm>
#include <vector>

#include "parallel.h"

namespace mlmfast {
namespace {

constexpr int64_t kMinRows = 64;  // of a thread

}  // namespace

void linear_score(const LinearScore& call, const HeadInputs& inputs, const LinearScores& outputs) {
  const int64_t columns = call.weight.columns, num_rows = inputs.num_rows;
  const Head head(call.weight, call.bias, call.precision, call.isa);
  const bool needs_sums = outputs.lse != nullptr || std::any_of(call.rules.begin(), call.rules.end(), [](const auto& r) {
                            return r.rule != Rule::log;
                          });
  std::vector<LogitSums> sums(needs_sums ? num_rows : 0);
  const int64_t num_targets = inputs.target_offsets[num_rows];
  const int64_t num_parts = std::clamp(call.num_threads, int64_t{1}, std::max<int64_t>(1, num_rows / kMinRows));
  in_parallel(num_parts, [&](int64_t part) {
    const int64_t begin = part * num_rows / num_parts, end = (part + 1) * num_rows / num_parts;
    HeadOutputs own = outputs.head;
    if (needs_sums) own.sums = sums.data() + begin;
    head.score({inputs.hidden + begin * columns, end - begin, inputs.target_ids, inputs.target_offsets + begin}, own);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t first = inputs.target_offsets[row], last = inputs.target_offsets[row + 1];
      if (outputs.lse != nullptr && first < last) outputs.lse[row] = log_sum_exp(sums[row]);
      for (size_t rule = 0; rule < call.rules.size(); ++rule) {
        float* scores = outputs.scores + rule * num_targets;
        for (int64_t t = first; t < last; ++t) {
          scores[t] = call.rules[rule].rule == Rule::log
                          ? own.log_prob[t]
                          : static_cast<float>(
                                -evaluate(call.rules[rule], call.weight.rows, own.logit[t], sums[row], {}).loss);
        }
      }
    }
  });
}

}  // namespace mlmfast
