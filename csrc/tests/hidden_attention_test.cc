// Attention over hidden states against plain keys, values and softmax in double.
#include "hidden_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "check.h"
#include "random_values.h"

namespace {

using namespace mlmfast;
using mlmfast::testing::check;
using mlmfast::testing::random_values;

struct Row {
  int64_t length, num_queries;
};

struct Case {
  std::vector<Row> rows;
  int64_t num_heads, head_size;
  float spread;  // of queries
};

struct Weights {
  std::vector<float> key, value, value_bias;
};

// w [first, first + count) of a weight [H, H], times x [H] plus a bias or null.
std::vector<double> product(const std::vector<float>& w, const float* bias, int64_t first, int64_t count,
                            const float* x, int64_t hidden) {
  std::vector<double> y(count);
  for (int64_t i = 0; i < count; ++i) {
    y[i] = bias == nullptr ? 0.0 : bias[first + i];
    for (int64_t k = 0; k < hidden; ++k) y[i] += double{w[(first + i) * hidden + k]} * x[k];
  }
  return y;
}

std::vector<int64_t> starts(const std::vector<Row>& rows, int64_t Row::*count) {
  std::vector<int64_t> result = {0};
  for (const Row& row : rows) result.push_back(result.back() + row.*count);
  return result;
}

void test(const Case& c, const Weights& w, Precision precision, Isa isa, double bound) {
  const int64_t hidden = c.num_heads * c.head_size;
  const std::vector<int64_t> row_starts = starts(c.rows, &Row::length);
  const std::vector<int64_t> query_starts = starts(c.rows, &Row::num_queries);
  const std::vector<float> x = random_values(row_starts.back() * hidden, 1.0f);
  const std::vector<float> queries = random_values(query_starts.back() * hidden, c.spread);
  const MatrixKernels& products = matrix_kernels(precision, isa);
  const float* bias = w.value_bias.empty() ? nullptr : w.value_bias.data();
  const HiddenAttention attention(rows_of(w.key.data(), hidden), rows_of(w.value.data(), hidden), bias, hidden,
                                  c.num_heads, products, sequence_kernels(isa));
  Operand operand(products);
  HiddenAttention::Scratch scratch;
  const auto attend = [&](size_t first, size_t count, float* contexts) {
    const std::vector<Row> rows(c.rows.begin() + first, c.rows.begin() + first + count);
    std::copy(queries.data() + query_starts[first] * hidden, queries.data() + query_starts[first + count] * hidden,
              contexts);
    attention.attend(contexts, starts(rows, &Row::num_queries).data(), x.data() + row_starts[first] * hidden,
                     starts(rows, &Row::length).data(), static_cast<int64_t>(count), operand, scratch);
  };
  std::vector<float> contexts(queries.size(), std::numeric_limits<float>::quiet_NaN());
  attend(0, c.rows.size(), contexts.data());
  const double scale = 1.0 / std::sqrt(static_cast<double>(c.head_size));
  for (size_t r = 0; r < c.rows.size(); ++r) {
    const auto [length, num_queries] = c.rows[r];
    const std::string name = std::string("hidden attention, ") + precision_name(precision) + " on " + isa_name(isa) +
                             ", length " + std::to_string(length) + ", heads of " + std::to_string(c.head_size);
    std::vector<float> alone(num_queries * hidden, std::numeric_limits<float>::quiet_NaN());
    attend(r, 1, alone.data());
    check(std::equal(alone.begin(), alone.end(), contexts.begin() + query_starts[r] * hidden),
          name + ": the same bits alone");
    for (int64_t h = 0; h < c.num_heads; ++h) {
      std::vector<std::vector<double>> keys, values;
      for (int64_t t = row_starts[r]; t < row_starts[r + 1]; ++t) {
        const float* state = x.data() + t * hidden;
        keys.push_back(product(w.key, nullptr, h * c.head_size, c.head_size, state, hidden));
        values.push_back(product(w.value, bias, h * c.head_size, c.head_size, state, hidden));
      }
      for (int64_t q = query_starts[r]; q < query_starts[r + 1]; ++q) {
        std::vector<double> weights(length, 0.0);
        for (int64_t k = 0; k < length; ++k) {
          for (int64_t i = 0; i < c.head_size; ++i) {
            weights[k] += scale * queries[q * hidden + h * c.head_size + i] * keys[k][i];
          }
        }
        const double max = *std::max_element(weights.begin(), weights.end());
        double sum = 0;
        for (double& weight : weights) sum += weight = std::exp(weight - max);
        for (int64_t i = 0; i < c.head_size; ++i) {
          double expected = 0;
          for (int64_t k = 0; k < length; ++k) expected += weights[k] / sum * values[k][i];
          check(std::abs(contexts[q * hidden + h * c.head_size + i] - expected) <= bound,
                name + ", feature " + std::to_string(i));
        }
      }
    }
  }
}

}  // namespace

int main() {
  const Case cases[] = {
      {{{1, 1}}, 1, 7, 1.0f},
      {{{3, 1}, {1, 1}, {17, 1}, {2, 0}, {64, 1}}, 3, 12, 1.0f},
      {{{13, 1}, {65, 3}, {5, 1}}, 5, 32, 3.0f},
      {{{511, 1}, {512, 2}}, 2, 64, 1.0f},
      {{{9, 3}, {80, 70}, {4, 40}, {5, 24}, {6, 1}, {3, 0}}, 2, 16, 1.0f},
  };
  for (const Case& c : cases) {
    const int64_t hidden = c.num_heads * c.head_size;
    const float size = 1.0f / std::sqrt(static_cast<float>(hidden));
    Weights w{random_values(hidden * hidden, size), random_values(hidden * hidden, size), random_values(hidden, 1.0f)};
    for (Isa isa : available_isas()) {
      test(c, w, Precision::float32, isa, 1e-5);
      test(c, w, Precision::bf16x3, isa, 2e-4);
      test(c, w, Precision::bf16x4, isa, 1e-4);
      test(c, w, Precision::bfloat16, isa, 0.04);
      test(c, w, Precision::int8, isa, 0.15);
    }
    w.value_bias.clear();
    test(c, w, Precision::float32, Isa::generic, 1e-5);
  }
  return mlmfast::testing::report("hidden_attention_test");
}
