// Whole rows of logits: the head's, and a model's in the order of its batch's targets (argv[1]: tests/data/models).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "check.h"
#include "mlmfast/head.h"
#include "mlmfast/isa.h"
#include "mlmfast/model.h"
#include "random_values.h"

using namespace mlmfast;
using mlmfast::testing::check;
using mlmfast::testing::random_values;

namespace {

constexpr float kTolerance = 2e-5f;

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Problem {
  int64_t num_rows, hidden_size, vocab_size;
  std::vector<float> hidden, weight, bias;
  std::vector<int32_t> ids;
  std::vector<int64_t> offsets = {0};

  // Rows of 0 to 3 targets, two of them the same class.
  Problem(int64_t rows, int64_t size, int64_t classes)
      : num_rows(rows),
        hidden_size(size),
        vocab_size(classes),
        hidden(random_values(rows * size, 1)),
        weight(random_values(classes * size, 0.3f)),
        bias(random_values(classes, 1)) {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t last = classes - 1;
      for (int64_t id : {r * 37 % classes, last, last}) {
        if (static_cast<int64_t>(ids.size()) < offsets.back() + r % 4) ids.push_back(static_cast<int32_t>(id));
      }
      offsets.push_back(static_cast<int64_t>(ids.size()));
    }
  }

  HeadInputs inputs() const { return {hidden.data(), num_rows, ids.data(), offsets.data()}; }

  double logit(int64_t row, int64_t id) const {
    double sum = bias[id];
    for (int64_t i = 0; i < hidden_size; ++i) {
      sum += double{hidden[row * hidden_size + i]} * weight[id * hidden_size + i];
    }
    return sum;
  }
};

// The plain reference: every product in double; what is reduced from the stored logits, and their bits.
void check_head(const Problem& p, const Head& head, const std::string& what) {
  const int64_t num_targets = static_cast<int64_t>(p.ids.size());
  std::vector<float> log_prob(num_targets), logit(num_targets), alone(num_targets);
  std::vector<float> logits(num_targets * p.vocab_size, NAN);
  head.score(p.inputs(), {.log_prob = log_prob.data(), .logit = logit.data(), .logits = logits.data()});
  head.score(p.inputs(), {.log_prob = alone.data()});
  check(same_bits(alone, log_prob), what + ": log_prob changes where logits are asked for");
  for (int64_t r = 0; r < p.num_rows; ++r) {
    for (int64_t t = p.offsets[r]; t < p.offsets[r + 1]; ++t) {
      const float* row = logits.data() + t * p.vocab_size;
      const std::string place = what + ", target " + std::to_string(t);
      check(std::memcmp(row + p.ids[t], &logit[t], sizeof(float)) == 0, place + ": logit is not in its row");
      double sum = 0;
      for (int64_t v = 0; v < p.vocab_size; ++v) {
        check(std::abs(row[v] - p.logit(r, v)) <= kTolerance, place + ": class " + std::to_string(v));
        sum += std::exp(double{row[v]});
      }
      check(std::abs(log_prob[t] - (row[p.ids[t]] - std::log(sum))) <= kTolerance, place + ": log_prob");
    }
  }
}

void check_heads() {
  for (const auto& [rows, size, classes] :
       {std::tuple{0, 4, 5}, {1, 1, 1}, {4, 12, 17}, {67, 24, 530}, {9, 300, 1100}}) {
    const Problem problem(rows, size, classes);
    for (Isa isa : available_isas()) {
      const float *weight = problem.weight.data(), *bias = problem.bias.data();
      const WeightView view{reinterpret_cast<const std::byte*>(weight), DType::f32, classes, size};
      const std::string what = std::string(isa_name(isa)) + " " + std::to_string(classes) + " classes";
      check_head(problem, Head(rows_of(weight, size), bias, nullptr, classes, size, Precision::float32, isa), what);
      check_head(problem, Head(view, bias, Precision::float32, isa), what + " by tile");
    }
  }
}

// Targets whose order is not that of their places: each has the logits it has alone.
void check_model(const std::string& models) {
  const Model model(models + "/bert", Precision::float32, default_isa());
  const std::vector<int32_t> ids = {2, 17, 40, 9, 3}, rows = {0, 0}, masks = {2, 1};
  const std::vector<int64_t> texts = {0, 5}, mask_offsets = {0, 1, 2};
  const std::vector<int32_t> positions = {3, 2, 3, 1}, targets = {9, 40, 8, 17};
  const std::vector<int64_t> offsets = {0, 3, 4};
  const int64_t vocab_size = model.spec().vocab_size;
  const auto logits_of = [&](const std::vector<int32_t>& at, const std::vector<int32_t>& of,
                             const std::vector<int64_t>& bounds) {
    std::vector<float> log_prob(at.size()), logits(at.size() * vocab_size);
    model.score({ids.data(), texts.data(), nullptr, 1, rows.data(), 2, masks.data(), mask_offsets.data(),
                 at.data(), of.data(), bounds.data(), 4},
                {.log_prob = log_prob.data(), .logits = logits.data()});
    return logits;
  };
  const std::vector<float> together = logits_of(positions, targets, offsets);
  for (int64_t t = 0; t < 4; ++t) {
    const bool first_row = t < 3;
    const std::vector<float> alone = logits_of({positions[t]}, {targets[t]}, {0, first_row, 1});
    const auto begin = together.begin() + t * vocab_size;
    check(same_bits(alone, {begin, begin + vocab_size}), "logits of the model's target " + std::to_string(t));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  check_heads();
  check_model(argv[1]);
  return mlmfast::testing::report("head_logits_test");
}
