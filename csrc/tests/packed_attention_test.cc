// Attention over packed operands against its plain twin in double over the same rounded factors.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "bf16.h"
#include "check.h"
#include "cpu/packed_attention.h"
#include "mlmfast/aligned_buffer.h"
#include "mlmfast/weights.h"
#include "random_values.h"

namespace {

using namespace mlmfast;
using mlmfast::testing::check;
using mlmfast::testing::random_values;
using mlmfast::testing::to_bf16;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kScale = 0.2f;

// Tokens of `size` values as their bfloat16 parts, NaN in what stands behind them.
class Rows {
 public:
  Rows(int64_t num_planes, int64_t num_tokens, int64_t size, float spread)
      : num_planes_(num_planes), plane_(size / 2), stride_(num_planes * plane_ + 3) {
    words_.assign((num_tokens + kAttentionRowUnit - 1) * stride_, kNaN);
    const std::vector<float> values = random_values(num_tokens * size, spread);
    for (int64_t i = 0; i < num_tokens * size; ++i) set(i / size, i % size, values[i]);
  }
  void set(int64_t token, int64_t i, float value) {
    for (int64_t p = 0; p < num_planes_; ++p) {
      uint16_t& part = reinterpret_cast<uint16_t*>(words_.data() + token * stride_ + p * plane_)[i];
      part = to_bf16(value);
      value -= bf16_to_f32(part);
    }
  }
  float at(int64_t token, int64_t i) const {
    float value = 0.0f;
    for (int64_t p = num_planes_; p-- > 0;) {
      value += bf16_to_f32(reinterpret_cast<const uint16_t*>(words_.data() + token * stride_ + p * plane_)[i]);
    }
    return value;
  }
  void copy(int64_t token, const Rows& from, int64_t from_token) {
    std::copy_n(from.words_.data() + from_token * stride_, num_planes_ * plane_, words_.data() + token * stride_);
  }
  const float* words() const { return words_.data(); }
  int64_t stride() const { return stride_; }
  int64_t plane() const { return plane_; }

 private:
  int64_t num_planes_, plane_, stride_;
  std::vector<float> words_;
};

struct Sequence {
  int64_t length, num_queries;
};

struct Case {
  std::vector<Sequence> sequences;
  int64_t num_heads, head_size;
  float spread;  // of queries and keys
};

std::vector<int64_t> starts(const std::vector<Sequence>& sequences, int64_t first, int64_t Sequence::*count) {
  std::vector<int64_t> result = {first};
  for (const Sequence& sequence : sequences) result.push_back(result.back() + sequence.*count);
  return result;
}

// The outputs [queries, num_heads * head_size] as floats.
std::vector<float> attend(const PackedAttentionKernels& kernels, const Case& c, const Rows& queries, const Rows& keys,
                          const Rows& values) {
  const std::vector<int64_t> row_starts = starts(c.sequences, 0, &Sequence::length);
  const std::vector<int64_t> query_starts = starts(c.sequences, 5, &Sequence::num_queries);
  const int64_t hidden = c.num_heads * c.head_size, num_queries = query_starts.back() - 5;
  const int64_t plane = hidden / 2 + 16, stride = kernels.num_planes * plane;
  int64_t longest = 0;
  for (const Sequence& sequence : c.sequences) longest = std::max(longest, sequence.length);
  AlignedBuffer buffer, output;
  const int64_t scratch_size = kernels.scratch(longest, c.num_heads, c.head_size);
  float *scratch = buffer.reserve(scratch_size + 1), *words = output.reserve(num_queries * stride);
  std::fill_n(scratch, scratch_size + 1, kNaN);
  std::fill_n(words, num_queries * stride, kNaN);
  kernels.attend({queries.words(), keys.words(), values.words(), queries.stride(), keys.stride(), queries.plane(),
                  keys.plane(), row_starts.data(), query_starts.data(), static_cast<int64_t>(c.sequences.size()),
                  c.num_heads, c.head_size, kScale, {words, stride, plane}},
                 scratch);
  check(std::isnan(scratch[scratch_size]), "packed attention stays in its scratch memory");
  std::vector<float> outputs(num_queries * hidden, 0.0f);
  for (int64_t row = 0; row < num_queries * kernels.num_planes; ++row) {
    check(std::isnan(words[row * plane + hidden / 2]), "packed attention writes only its outputs");
    const uint16_t* parts = reinterpret_cast<const uint16_t*>(words + row * plane);
    float* to = outputs.data() + row / kernels.num_planes * hidden;
    for (int64_t i = 0; i < hidden; ++i) to[i] += bf16_to_f32(parts[i]);
  }
  return outputs;
}

void test(const PackedAttentionKernels& kernels, const Case& c) {
  const std::vector<int64_t> row_starts = starts(c.sequences, 0, &Sequence::length);
  const std::vector<int64_t> query_starts = starts(c.sequences, 0, &Sequence::num_queries);
  const int64_t hidden = c.num_heads * c.head_size;
  const int64_t planes = kernels.num_planes;
  const Rows queries(planes, query_starts.back(), hidden, c.spread);
  // As the encoder lays them out: rows of keys and values with one stride.
  const Rows keys(planes, row_starts.back(), hidden, c.spread), values(planes, row_starts.back(), hidden, 1.0f);
  const std::vector<float> outputs = attend(kernels, c, queries, keys, values);
  for (size_t s = 0; s < c.sequences.size(); ++s) {
    const auto [length, num_queries] = c.sequences[s];
    const std::string name = "packed attention, length " + std::to_string(length) + ", " +
                             std::to_string(c.num_heads) + " heads of " + std::to_string(c.head_size);
    for (int64_t q = query_starts[s]; q < query_starts[s + 1]; ++q) {
      for (int64_t h = 0; h < c.num_heads; ++h) {
        std::vector<double> weights(length, 0.0), output(c.head_size, 0.0);
        double largest_score = 0;
        for (int64_t k = 0; k < length; ++k) {
          double magnitude = 0;
          for (int64_t i = h * c.head_size; i < (h + 1) * c.head_size; ++i) {
            const double term = double{kScale} * queries.at(q, i) * keys.at(row_starts[s] + k, i);
            weights[k] += term;
            magnitude += std::abs(term);
          }
          largest_score = std::max(largest_score, magnitude);
        }
        // A weight and the output are rounded to bfloat16, at most 2^-8 off each, and 2^x is 1e-4 off. Parts are at most
        // 2^-17 off, the product of low parts is at most 2^-18 of that of the factors, and sums are of float32.
        const double tolerance = planes == 1 ? 0x1p-7 + 5e-4 : 0x1p-15 + 0x1p-16 * largest_score;
        const double max = *std::max_element(weights.begin(), weights.end());
        double sum = 0, magnitude = 0;
        for (double& weight : weights) sum += weight = std::exp(weight - max);
        for (int64_t i = 0; i < c.head_size; ++i) {
          magnitude = 0;
          for (int64_t k = 0; k < length; ++k) {
            const double term = weights[k] / sum * values.at(row_starts[s] + k, h * c.head_size + i);
            output[i] += term;
            magnitude += std::abs(term);
          }
          check(std::abs(outputs[q * hidden + h * c.head_size + i] - output[i]) <= tolerance * magnitude,
                name + ", query " + std::to_string(q - query_starts[s]) + ", feature " + std::to_string(i));
        }
      }
    }
  }
}

// A query has the same bits whatever sequences and queries stand beside it.
void test_alone(const PackedAttentionKernels& kernels) {
  constexpr int64_t kNumHeads = 3, kHeadSize = 32, kHidden = kNumHeads * kHeadSize;
  const Case c = {{{13, 13}, {40, 40}, {1, 1}, {33, 33}}, kNumHeads, kHeadSize, 2.0f};
  const int64_t planes = kernels.num_planes;
  const Rows queries(planes, 87, kHidden, 2.0f), keys(planes, 87, kHidden, 2.0f), values(planes, 87, kHidden, 1.0f);
  const std::vector<float> outputs = attend(kernels, c, queries, keys, values);
  int64_t first = 0;
  for (const Sequence& sequence : c.sequences) {
    Rows some_keys(planes, sequence.length, kHidden, 1.0f), some_values(planes, sequence.length, kHidden, 1.0f);
    for (int64_t k = 0; k < sequence.length; ++k) {
      some_keys.copy(k, keys, first + k);
      some_values.copy(k, values, first + k);
    }
    for (int64_t q = 0; q < sequence.length; ++q) {
      Rows query(planes, 1, kHidden, 1.0f);
      query.copy(0, queries, first + q);
      const Case alone = {{{sequence.length, 1}}, kNumHeads, kHeadSize, 0};
      const std::vector<float> output = attend(kernels, alone, query, some_keys, some_values);
      check(std::equal(output.begin(), output.end(), outputs.begin() + (first + q) * kHidden),
            "packed attention of a query alone");
    }
    first += sequence.length;
  }
}

// NaN in a query, a key or a value reaches the outputs that read it, and no others.
void test_nan(const PackedAttentionKernels& kernels) {
  const Case c = {{{5, 5}, {20, 20}}, 2, 32, 1.0f};
  for (int part = 0; part < 3; ++part) {
    std::vector<Rows> rows(3, Rows(kernels.num_planes, 25, 64, 1.0f));
    rows[part].set(7, 40, kNaN);  // of the second sequence, the second head
    const std::vector<float> outputs = attend(kernels, c, rows[0], rows[1], rows[2]);
    for (int64_t i = 0; i < 25 * 64; ++i) {
      const int64_t query = i / 64, feature = i % 64;
      const bool reads = query >= 5 && feature >= 32 && (part == 1 || (part == 0 ? query == 7 : feature == 40));
      check(std::isnan(outputs[i]) == reads, "NaN in packed attention, part " + std::to_string(part));
    }
  }
}

}  // namespace

int main() {
  for (const Precision precision : kPrecisions) {
    for (const Isa isa : available_isas()) {
      const PackedAttentionKernels* kernels = packed_attention_kernels(precision, isa);
      if (kernels == nullptr) continue;
      for (const int64_t length : {1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 511, 512}) {
        for (const int64_t head_size : {32, 64, 96}) {
          test(*kernels, {{{length, std::min<int64_t>(length, 35)}}, 2, head_size, 1.0f});
        }
      }
      test(*kernels, {{{13, 13}, {16, 0}, {7, 1}, {64, 64}, {1, 1}, {130, 3}}, 12, 32, 1.0f});
      for (const float spread : {20.0f, 1e8f}) test(*kernels, {{{50, 50}}, 2, 64, spread});
      test_alone(*kernels);
      test_nan(*kernels);
    }
  }
  return mlmfast::testing::report("packed_attention_test");
}
