// Attention, layer norm, rotary turns and sums on every instruction set against their plain twins in double.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "check.h"
#include "cpu/sequence_kernels.h"
#include "mlmfast/aligned_buffer.h"
#include "random_values.h"

namespace {

using namespace mlmfast;
using mlmfast::testing::check;
using mlmfast::testing::random_values;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<double> plain_attention(const HeadAttention& a, int64_t query) {
  std::vector<double> weights(a.length, 0.0), output(a.head_size, 0.0);
  double max = -std::numeric_limits<double>::infinity(), sum = 0;
  const int64_t position = a.query_positions[query];
  const auto sees = [&](int64_t k) { return a.reach < 0 || std::abs(k - position) <= a.reach; };
  for (int64_t k = 0; k < a.length; ++k) {
    for (int64_t i = 0; i < a.head_size; ++i) {
      weights[k] += double{a.queries[query * a.query_stride + i]} * a.keys[k * a.key_stride + i];
    }
    weights[k] *= a.scale;
    if (sees(k)) max = std::max(max, weights[k]);
  }
  for (int64_t k = 0; k < a.length; ++k) {
    weights[k] = sees(k) ? std::exp(weights[k] - max) : 0.0;
    sum += weights[k];
  }
  for (int64_t k = 0; k < a.length; ++k) {
    for (int64_t i = 0; i < a.head_size; ++i) output[i] += weights[k] / sum * a.values[k * a.key_stride + i];
  }
  return output;
}

struct AttentionCase {
  int64_t length, head_size;
  std::vector<int32_t> positions;
  int64_t reach;
  float spread;  // of queries and keys
};

// The outputs [queries, head_size]; what the kernel must not write is checked to be untouched.
std::vector<float> attend(const SequenceKernels& kernels, const AttentionCase& c, const HeadAttention& inputs) {
  HeadAttention a = inputs;
  AlignedBuffer buffer;
  const int64_t scratch_size = kernels.attention_scratch(c.length, c.head_size);
  float* scratch = buffer.reserve(scratch_size);
  std::fill_n(scratch, scratch_size, kNaN);
  a.output_stride = c.head_size + 1;
  std::vector<float> padded(a.num_queries * a.output_stride, kNaN);
  a.output = padded.data();
  kernels.attend(a, scratch);
  std::vector<float> outputs;
  for (int64_t q = 0; q < a.num_queries; ++q) {
    const auto row = padded.begin() + q * a.output_stride;
    outputs.insert(outputs.end(), row, row + c.head_size);
    check(std::isnan(row[c.head_size]), "attention writes only its outputs");
  }
  return outputs;
}

void test_attention(const SequenceKernels& kernels, const AttentionCase& c) {
  const int64_t stride = c.head_size + 3, num_queries = static_cast<int64_t>(c.positions.size());
  const std::vector<float> queries = random_values(num_queries * stride, c.spread);
  const std::vector<float> keys = random_values(c.length * stride, c.spread);
  const std::vector<float> values = random_values(c.length * stride, 1.0f);
  HeadAttention a{};
  a.queries = queries.data();
  a.keys = keys.data();
  a.values = values.data();
  a.query_stride = a.key_stride = stride;
  a.query_positions = c.positions.data();
  a.num_queries = num_queries;
  a.length = c.length;
  a.head_size = c.head_size;
  a.scale = 1.0f / std::sqrt(static_cast<float>(c.head_size));
  a.reach = c.reach;
  const std::string name = "attention, width " + std::to_string(kernels.width) + ", length " +
                           std::to_string(c.length) + ", head size " + std::to_string(c.head_size) +
                           ", reach " + std::to_string(c.reach);
  const std::vector<float> outputs = attend(kernels, c, a);
  // Of very different scores one weight is 1.
  const double bound = c.spread < 100 ? 2e-5 * std::max(1.0f, c.spread * c.spread) : 1e-6;
  for (int64_t q = 0; q < num_queries; ++q) {
    const std::vector<double> expected = plain_attention(a, q);
    for (int64_t i = 0; i < c.head_size; ++i) {
      check(std::abs(outputs[q * c.head_size + i] - expected[i]) < bound,
            name + " query " + std::to_string(q) + " feature " + std::to_string(i));
    }
    // Asked alone, a query has the same bits.
    HeadAttention alone = a;
    alone.queries += q * stride;
    alone.query_positions += q;
    alone.num_queries = 1;
    const std::vector<float> output = attend(kernels, c, alone);
    check(std::equal(output.begin(), output.end(), outputs.begin() + q * c.head_size),
          name + " query " + std::to_string(q) + " asked alone");
  }
}

std::vector<int32_t> all_positions(int64_t length) {
  std::vector<int32_t> positions(length);
  for (int64_t i = 0; i < length; ++i) positions[i] = static_cast<int32_t>(i);
  return positions;
}

void test_layer_norm(const SequenceKernels& kernels, int64_t size, bool with_bias, float offset) {
  std::vector<float> x = random_values(size, 2.0f), y(size + 1, kNaN);
  for (float& value : x) value += offset;
  const std::vector<float> weight = random_values(size, 1.0f), bias = random_values(size, 1.0f);
  constexpr float kEps = 1e-12f;
  kernels.layer_norm(x.data(), size, weight.data(), with_bias ? bias.data() : nullptr, kEps, y.data());
  double mean = 0, variance = 0;
  for (float value : x) mean += value;
  mean /= static_cast<double>(size);
  for (float value : x) variance += (value - mean) * (value - mean);
  variance /= static_cast<double>(size);
  for (int64_t i = 0; i < size; ++i) {
    const double expected = (x[i] - mean) / std::sqrt(variance + kEps) * weight[i] + (with_bias ? bias[i] : 0.0f);
    check(std::abs(y[i] - expected) < 1e-5 * (1.0 + std::abs(offset)), "layer norm of " + std::to_string(size));
  }
  check(std::isnan(y[size]), "layer norm writes only its outputs");
}

void test_rotate(const SequenceKernels& kernels, int64_t half) {
  const std::vector<float> x = random_values(2 * half, 1.0f), angles = random_values(half, 3.0f);
  std::vector<float> cosines(half), sines(half), turned = x;
  for (int64_t i = 0; i < half; ++i) {
    cosines[i] = std::cos(angles[i]);
    sines[i] = std::sin(angles[i]);
  }
  kernels.rotate(turned.data(), cosines.data(), sines.data(), half);
  for (int64_t i = 0; i < half; ++i) {
    check(std::abs(turned[i] - (double{x[i]} * cosines[i] - double{x[half + i]} * sines[i])) < 1e-6, "rotation, first half");
    check(std::abs(turned[half + i] - (double{x[half + i]} * cosines[i] + double{x[i]} * sines[i])) < 1e-6, "rotation, second half");
  }
}

void test_add(const SequenceKernels& kernels, int64_t size) {
  const std::vector<float> a = random_values(size, 1.0f), b = random_values(size, 1.0f);
  std::vector<float> sum(size + 1, kNaN);
  kernels.add(a.data(), b.data(), size, sum.data());
  for (int64_t i = 0; i < size; ++i) check(sum[i] == a[i] + b[i], "sum of rows");
  check(std::isnan(sum[size]), "a sum of rows writes only its outputs");
}

}  // namespace

int main() {
  for (const Isa isa : available_isas()) {
    const SequenceKernels& kernels = sequence_kernels(isa);
    for (const int64_t length : {1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 63, 64, 65, 511, 512}) {
      for (const int64_t head_size : {1, 7, 16, 24, 32, 64, 80}) {
        test_attention(kernels, {length, head_size, all_positions(std::min<int64_t>(length, 40)), -1, 1.0f});
      }
      test_attention(kernels, {length, 32, {static_cast<int32_t>(length - 1), 0}, -1, 1.0f});
      for (const int64_t reach : {0, 1, 5, 64}) {
        test_attention(kernels, {length, 32, all_positions(length), reach, 1.0f});
        test_attention(kernels, {length, 8, {static_cast<int32_t>(length / 2), 0}, reach, 1.0f});
      }
    }
    for (const float spread : {20.0f, 1e6f, 1e15f}) {
      test_attention(kernels, {65, 32, all_positions(65), -1, spread});
      test_attention(kernels, {65, 32, all_positions(65), 5, spread});
    }
    for (const int64_t size : {1, 3, 16, 17, 64, 384, 1001}) {
      for (const float offset : {0.0f, 100.0f}) {
        if (size > 1) test_layer_norm(kernels, size, true, offset);
        if (size > 1) test_layer_norm(kernels, size, false, offset);
      }
      test_rotate(kernels, size);
      test_add(kernels, size);
    }
  }
  return mlmfast::testing::report("sequence_test");
}
