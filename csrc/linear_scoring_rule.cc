#include "mlmfast/linear_scoring_rule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "mlmfast/head.h"

namespace mlmfast {
namespace {

constexpr int64_t kChunkFloats = 1024 * 1024;  // of input rows that are not floats already
constexpr float kInfinity = std::numeric_limits<float>::infinity();

void check(const LinearScoringRule& call) {
  if (call.input.columns != call.weight.columns) {
    throw std::invalid_argument("input has " + std::to_string(call.input.columns) + " columns, weight " +
                                std::to_string(call.weight.columns));
  }
  for (int64_t row = 0; row < call.input.rows; ++row) {
    if (call.targets[row] >= call.weight.rows) {
      throw std::invalid_argument("targets[" + std::to_string(row) + "] is " + std::to_string(call.targets[row]) +
                                  ", but there are " + std::to_string(call.weight.rows) + " classes");
    }
  }
}

// The rows [begin, end) of a call, with room for what the head gives.
class Rows {
 public:
  Rows(const LinearScoringRule& call, const Head& head) : call_(call), head_(head) {}

  void forward(int64_t begin, int64_t end, float* losses, float* coefficients) {
    const int64_t num_rows = end - begin;
    select(begin, end);
    const float* hidden = hidden_rows(begin, num_rows);
    const HeadInputs inputs{hidden, num_rows, target_ids_.data(), target_offsets_.data()};
    sums_.resize(num_rows);
    tails_.assign(num_rows, {});
    log_probs_.resize(target_ids_.size());
    logits_.resize(target_ids_.size());
    HeadOutputs outputs;
    outputs.log_prob = log_probs_.data();
    outputs.logit = logits_.data();
    outputs.sums = sums_.data();
    head_.score(inputs, outputs);
    if (call_.rule.has_tail()) {
      thresholds_.resize(num_rows);
      for (int64_t r = 0; r < num_rows; ++r) {
        thresholds_[r] = static_cast<float>(tail_threshold(call_.rule, call_.weight.rows, sums_[r]));
      }
      outputs = {};
      outputs.log_prob = log_probs_.data();
      outputs.thresholds = thresholds_.data();
      outputs.tails = tails_.data();
      head_.score(inputs, outputs);
    }
    for (int64_t r = 0; r < num_rows; ++r) {
      write(r, losses + begin + r, coefficients + (begin + r) * kNumCoefficients);
    }
  }

 private:
  void select(int64_t begin, int64_t end) {
    target_ids_.clear();
    target_offsets_.assign(1, 0);
    for (int64_t row = begin; row < end; ++row) {
      if (call_.targets[row] >= 0) target_ids_.push_back(static_cast<int32_t>(call_.targets[row]));
      target_offsets_.push_back(static_cast<int64_t>(target_ids_.size()));
    }
  }

  const float* hidden_rows(int64_t begin, int64_t num_rows) {
    const int64_t columns = call_.input.columns;
    if (call_.input.dtype == DType::f32) return reinterpret_cast<const float*>(call_.input.data) + begin * columns;
    float* rows = hidden_.reserve(num_rows * columns);
    call_.input.read(begin * columns, num_rows * columns, rows);
    return rows;
  }

  void write(int64_t r, float* loss, float* coefficients) {
    const int64_t target = target_offsets_[r];
    const bool is_ignored = target == target_offsets_[r + 1];
    LossAndGradient g{};
    g.lse = kInfinity;
    if (!is_ignored) g = evaluate(call_.rule, call_.weight.rows, logits_[target], sums_[r], tails_[r]);
    *loss = static_cast<float>(g.loss);
    const double values[kNumCoefficients] = {g.lse, g.a, g.b, 0, g.u, g.d, g.target_gradient};
    std::copy(values, values + kNumCoefficients, coefficients);
  }

  const LinearScoringRule& call_;
  const Head& head_;
  AlignedBuffer hidden_;
  std::vector<int32_t> target_ids_;
  std::vector<int64_t> target_offsets_;
  std::vector<LogitSums> sums_;
  std::vector<TailSums> tails_;
  std::vector<float> log_probs_, logits_, thresholds_;
};

}  // namespace

void linear_scoring_rule_forward(const LinearScoringRule& call, float* losses, float* coefficients) {
  check(call);
  const int64_t num_rows = call.input.rows, columns = call.input.columns;
  const auto read = [&](int64_t first, int64_t count, float* rows) {
    call.weight.read(first * columns, count * columns, rows);
  };
  const Head head(read, call.bias, nullptr, call.weight.rows, columns, call.precision, call.isa, Packing::by_tile);
  Rows rows(call, head);
  const int64_t most = call.input.dtype == DType::f32 ? num_rows : std::max<int64_t>(1, kChunkFloats / columns);
  for (int64_t begin = 0; begin < num_rows; begin += most) {
    rows.forward(begin, std::min(num_rows, begin + most), losses, coefficients);
  }
}

}  // namespace mlmfast
