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

constexpr int64_t kChunkFloats = 2048 * 1024;  // of input rows that are not floats already
constexpr int64_t kSliceUnit = 512;            // classes
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
  const int64_t columns = call.weight.columns;
  const auto read = [&call, classes, columns](int64_t first, int64_t count, float* rows) {
    call.weight.read((classes.begin + first) * columns, count * columns, rows);
  };
  const float* bias = call.bias == nullptr ? nullptr : call.bias + classes.begin;
  return {classes,
          Head(read, bias, nullptr, classes.end - classes.begin, columns, call.precision, call.isa, Packing::by_tile),
          {},
          {},
          {},
          {},
          {}};
}

class Forward {
 public:
  explicit Forward(const LinearScoringRule& call) : call_(call) {
    for (const ClassSlice& classes : class_slices(call)) slices_.push_back(make_slice(call, classes));
  }

  // The rows [begin, end).
  void run(int64_t begin, int64_t end, float* losses, float* coefficients) {
    select(begin, end);
    if (!targets_.empty()) score(begin, end);
    int64_t target = 0;
    for (int64_t row = begin; row < end; ++row) {
      const bool is_ignored = call_.targets[row] < 0;
      LossAndGradient g{};
      g.lse = kInfinity;
      if (!is_ignored) {
        g = evaluate(call_.rule, call_.weight.rows, target_logits_[target], sums_[row - begin], tails_[row - begin]);
        ++target;
      }
      losses[row] = static_cast<float>(g.loss);
      const double values[kNumCoefficients] = {g.lse, g.a, g.b, 0, g.u, g.d, g.target_gradient};
      std::copy(values, values + kNumCoefficients, coefficients + row * kNumCoefficients);
    }
  }

 private:
  void select(int64_t begin, int64_t end) {
    targets_.clear();
    target_offsets_.assign(1, 0);
    for (int64_t row = begin; row < end; ++row) {
      if (call_.targets[row] >= 0) targets_.push_back(call_.targets[row]);
      target_offsets_.push_back(static_cast<int64_t>(targets_.size()));
    }
  }

  void score(int64_t begin, int64_t end) {
    const int64_t num_rows = end - begin, num_targets = static_cast<int64_t>(targets_.size());
    const float* hidden = hidden_rows(begin, num_rows);
    target_logits_.resize(num_targets);
    for_every_slice([&](Slice& slice, HeadOutputs& outputs) {
      slice.target_ids.resize(num_targets);
      for (int64_t t = 0; t < num_targets; ++t) slice.target_ids[t] = local(slice, t) < 0 ? 0 : local(slice, t);
      slice.log_probs.resize(num_targets);
      slice.logits.resize(num_targets);
      slice.sums.assign(num_rows, {});
      outputs.logit = slice.logits.data();
      outputs.sums = slice.sums.data();
      score_slice(slice, hidden, num_rows, outputs);
      for (int64_t t = 0; t < num_targets; ++t) {
        if (local(slice, t) >= 0) target_logits_[t] = slice.logits[t];
      }
    });
    sums_ = slices_[0].sums;
    for (size_t i = 1; i < slices_.size(); ++i) {
      for (int64_t r = 0; r < num_rows; ++r) merge(sums_[r], slices_[i].sums[r]);
    }
    tails_.assign(num_rows, {});
    if (call_.rule.has_tail()) score_tails(hidden, num_rows);
  }

  void score_tails(const float* hidden, int64_t num_rows) {
    thresholds_.resize(num_rows);
    for (int64_t r = 0; r < num_rows; ++r) {
      thresholds_[r] = static_cast<float>(tail_threshold(call_.rule, call_.weight.rows, sums_[r]));
    }
    for_every_slice([&](Slice& slice, HeadOutputs& outputs) {
      slice.tails.assign(num_rows, {});
      outputs.thresholds = thresholds_.data();
      outputs.tails = slice.tails.data();
      score_slice(slice, hidden, num_rows, outputs);
    });
    for (const Slice& slice : slices_) {
      for (int64_t r = 0; r < num_rows; ++r) {
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

  void score_slice(Slice& slice, const float* hidden, int64_t num_rows, HeadOutputs& outputs) {
    outputs.log_prob = slice.log_probs.data();
    slice.head.score({hidden, num_rows, slice.target_ids.data(), target_offsets_.data()}, outputs);
  }

  // A target among the classes of the slice, or -1.
  int32_t local(const Slice& slice, int64_t t) const {
    const bool is_there = slice.classes.begin <= targets_[t] && targets_[t] < slice.classes.end;
    return is_there ? static_cast<int32_t>(targets_[t] - slice.classes.begin) : -1;
  }

  const float* hidden_rows(int64_t begin, int64_t num_rows) {
    const int64_t columns = call_.input.columns;
    if (call_.input.dtype == DType::f32) return reinterpret_cast<const float*>(call_.input.data) + begin * columns;
    float* rows = hidden_.reserve(num_rows * columns);
    call_.input.read(begin * columns, num_rows * columns, rows);
    return rows;
  }

  const LinearScoringRule& call_;
  std::vector<Slice> slices_;
  AlignedBuffer hidden_;
  std::vector<int64_t> targets_, target_offsets_;  // [t], [rows + 1]
  std::vector<float> target_logits_;               // [t]
  std::vector<LogitSums> sums_;                    // [rows]
  std::vector<TailSums> tails_;                    // [rows]
  std::vector<float> thresholds_;                  // [rows]
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
  Forward forward(call);
  const int64_t num_rows = call.input.rows;
  const int64_t most = call.input.dtype == DType::f32 ? std::max<int64_t>(1, num_rows)
                                                      : std::max<int64_t>(1, kChunkFloats / call.input.columns);
  for (int64_t begin = 0; begin < num_rows; begin += most) {
    forward.run(begin, std::min(num_rows, begin + most), losses, coefficients);
  }
}

}  // namespace mlmfast
