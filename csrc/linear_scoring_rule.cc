#include "mlmfast/linear_scoring_rule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "mlmfast/head.h"
#include "parallel.h"

namespace mlmfast {
namespace {

constexpr int64_t kSliceUnit = 512;  // classes
constexpr float kInfinity = std::numeric_limits<float>::infinity();

void check(const LinearScoringRule& call) {
  if (call.weight.rows < 1) throw std::invalid_argument("weight has no classes");
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

// The head over the classes of one thread, and what it gives for the rows at hand.
struct Slice {
  ClassSlice classes;
  Head head;
  std::vector<int32_t> target_ids;  // 0 for the targets among other classes
  std::vector<LogitSums> sums;
  std::vector<TailSums> tails;
  std::vector<float> log_probs, logits;
};

Slice make_slice(const LinearScoringRule& call, const ClassSlice& classes) {
  const float* bias = call.bias == nullptr ? nullptr : call.bias + classes.begin;
  const WeightView weight = call.weight.slice(classes.begin, classes.end);
  return {classes, Head(weight, bias, call.precision, call.isa), {}, {}, {}, {}, {}};
}

class Forward {
 public:
  explicit Forward(const LinearScoringRule& call)
      : call_(call), num_rows_(call.input.rows), target_offsets_(1, 0), sums_(num_rows_), tails_(num_rows_) {
    for (const ClassSlice& classes : class_slices(call)) slices_.push_back(make_slice(call, classes));
    for (int64_t row = 0; row < num_rows_; ++row) {
      if (call.targets[row] >= 0) targets_.push_back(call.targets[row]);
      target_offsets_.push_back(static_cast<int64_t>(targets_.size()));
    }
    target_logits_.resize(targets_.size());
  }

  void run(float* losses, float* coefficients) {
    if (!targets_.empty()) sum();
    if (!targets_.empty() && call_.rule.has_tail()) sum_tails();
    for (int64_t row = 0; row < num_rows_; ++row) {
      const int64_t target = target_offsets_[row];
      const bool is_ignored = target == target_offsets_[row + 1];
      LossAndGradient g{};
      g.lse = kInfinity;
      if (!is_ignored) g = evaluate(call_.rule, call_.weight.rows, target_logits_[target], sums_[row], tails_[row]);
      losses[row] = static_cast<float>(g.loss);
      const double values[kNumCoefficients] = {g.lse, g.a, g.b, 0, g.u, g.d, g.target_gradient};
      std::copy(values, values + kNumCoefficients, coefficients + row * kNumCoefficients);
    }
  }

 private:
  void sum() {
    const int64_t num_targets = static_cast<int64_t>(targets_.size());
    for_every_slice([&](Slice& slice, HeadOutputs& outputs) {
      slice.target_ids.resize(num_targets);
      for (int64_t t = 0; t < num_targets; ++t) slice.target_ids[t] = std::max(0, local(slice, t));
      slice.log_probs.resize(num_targets);
      slice.logits.resize(num_targets);
      slice.sums.resize(num_rows_);
      outputs.logit = slice.logits.data();
      outputs.sums = slice.sums.data();
      score(slice, outputs);
      for (int64_t t = 0; t < num_targets; ++t) {
        if (local(slice, t) >= 0) target_logits_[t] = slice.logits[t];
      }
    });
    for (const Slice& slice : slices_) {
      for (int64_t r = 0; r < num_rows_; ++r) merge(sums_[r], slice.sums[r]);
    }
  }

  void sum_tails() {
    std::vector<float> thresholds(num_rows_);
    for (int64_t r = 0; r < num_rows_; ++r) {
      thresholds[r] = static_cast<float>(tail_threshold(call_.rule, call_.weight.rows, sums_[r]));
    }
    for_every_slice([&](Slice& slice, HeadOutputs& outputs) {
      slice.tails.resize(num_rows_);
      outputs.thresholds = thresholds.data();
      outputs.tails = slice.tails.data();
      score(slice, outputs);
    });
    for (const Slice& slice : slices_) {
      for (int64_t r = 0; r < num_rows_; ++r) {
        tails_[r].count += slice.tails[r].count;
        tails_[r].sum += slice.tails[r].sum;
      }
    }
  }

  template <class Work>
  void for_every_slice(const Work& work) {
    in_parallel(static_cast<int64_t>(slices_.size()), [&](int64_t i) {
      HeadOutputs outputs;
      work(slices_[i], outputs);
    });
  }

  void score(Slice& slice, HeadOutputs& outputs) {
    outputs.log_prob = slice.log_probs.data();
    HeadInputs inputs{nullptr, num_rows_, slice.target_ids.data(), target_offsets_.data()};
    if (call_.input.dtype == DType::f32) {
      inputs.hidden = reinterpret_cast<const float*>(call_.input.data);
    } else {
      inputs.hidden_bf16 = reinterpret_cast<const uint16_t*>(call_.input.data);
    }
    slice.head.score(inputs, outputs);
  }

  // A target among the classes of the slice, or -1.
  int32_t local(const Slice& slice, int64_t t) const {
    const bool is_there = slice.classes.begin <= targets_[t] && targets_[t] < slice.classes.end;
    return is_there ? static_cast<int32_t>(targets_[t] - slice.classes.begin) : -1;
  }

  const LinearScoringRule& call_;
  int64_t num_rows_;
  std::vector<Slice> slices_;
  std::vector<int64_t> targets_, target_offsets_;  // [t], [rows + 1]
  std::vector<float> target_logits_;               // [t]
  std::vector<LogitSums> sums_;                    // [rows]
  std::vector<TailSums> tails_;                    // [rows]
};

}  // namespace

std::vector<ClassSlice> class_slices(const LinearScoringRule& call) {
  const int64_t num_units = (call.weight.rows + kSliceUnit - 1) / kSliceUnit;
  const int64_t count = std::clamp(call.num_threads, int64_t{1}, num_units);
  std::vector<ClassSlice> slices;
  for (int64_t i = 0; i < count; ++i) {
    slices.push_back({i * num_units / count * kSliceUnit,
                      std::min(call.weight.rows, (i + 1) * num_units / count * kSliceUnit)});
  }
  return slices;
}

void linear_scoring_rule_forward(const LinearScoringRule& call, float* losses, float* coefficients) {
  check(call);
  Forward(call).run(losses, coefficients);
}

}  // namespace mlmfast
