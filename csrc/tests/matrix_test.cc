// Matrix products of every precision on every instruction set of this CPU against sums in double.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bf16.h"
#include "check.h"
#include "cpu/matrix_kernels.h"
#include "mlmfast/aligned_buffer.h"
#include "mlmfast/matrix.h"
#include "mlmfast/weights.h"
#include "random_values.h"

namespace {

using namespace mlmfast;
using mlmfast::testing::check;
using mlmfast::testing::random_values;
using mlmfast::testing::to_bf16;
using mlmfast::testing::check_throws;
using Values = std::vector<float>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kMaxRows = 100;
constexpr int64_t kRowCounts[] = {0, 1, 15, 16, 17, 31, 33, 64, kMaxRows};
constexpr int64_t kSizes[] = {1, 3, 16, 31, 32, 33, 64, 100, 384};
constexpr Activation kActivations[] = {Activation::none, Activation::gelu, Activation::gelu_tanh,
                                       Activation::relu, Activation::silu};

// How far results may be from the double sum: times the sum of |x w| and |b|, which all roundings scale with.
// float32, bfloat16 and int8 (against the rounded factors): the order of summation. bf16x4: a factor rounded to two parts
// is at most 2^-17 off. bf16x3: low times low, too, is at most 2^-16 of the product. An int8 operand is half a step off,
// after its rounding to bfloat16: `step` of the largest value of its row.
struct Bounds {
  double product;
  double rounding;    // of a result as an operand, relative
  double activation;  // absolute
  double step = 0;    // of a result as an operand, relative to the largest of its row
};

Bounds bounds_of(Precision precision) {
  switch (precision) {
    case Precision::bf16x3:
      return {0x1p-15 + 1e-6, 0x1p-16, 1e-6};
    case Precision::bf16x4:
      return {0x1p-16 + 1e-6, 0x1p-16, 1e-6};
    case Precision::bfloat16:
      return {1e-6, 0x1p-8, 4e-5};
    case Precision::int8:
      return {1e-6, 0x1p-8, 1.1e-3, 0.51 / 127};
    default:
      return {1e-6, 1e-6, 1e-6};
  }
}

bool rounds_to_bf16(Precision precision) {
  return precision == Precision::bfloat16 || precision == Precision::int8;
}

double rounded_to_bf16(float value) { return std::bit_cast<float>(uint32_t{to_bf16(value)} << 16); }

double largest_of(const Values& values, int64_t first, int64_t count) {
  double largest = 0;
  for (int64_t i = first; i < first + count; ++i) largest = std::max(largest, std::abs(double{values[i]}));
  return largest;
}

// Rows of `columns` values as a precision rounds factors; bf16x3 and bf16x4 count as unrounded.
std::vector<double> factors(const Values& values, int64_t columns, Precision precision) {
  std::vector<double> result(values.begin(), values.end());
  if (precision == Precision::bfloat16) std::transform(values.begin(), values.end(), result.begin(), rounded_to_bf16);
  if (precision != Precision::int8) return result;
  for (size_t row = 0; row < values.size(); row += columns) {
    const float largest = static_cast<float>(largest_of(values, row, columns));
    for (size_t i = row; i < row + columns; ++i) {
      result[i] = largest == 0 ? 0.0 : std::nearbyint(values[i] * (127.0f / largest)) * double{largest / 127.0f};
    }
  }
  return result;
}

double activated(double x, Activation activation) {
  switch (activation) {
    case Activation::gelu:
      return x / 2 * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::silu:
      return x / (1 + std::exp(-x));
    default:
      return x;
  }
}

struct Reference {
  std::vector<double> y, scale;  // [m, N]; scale the sum of |x w| and |b|
};

Reference reference(const Values& x, const Values& weight, const Values& bias, int64_t k,
                    Precision precision) {
  const int64_t n = bias.size(), m = x.size() / k;
  const std::vector<double> left = factors(x, k, precision), right = factors(weight, k, precision);
  Reference result{std::vector<double>(m * n), std::vector<double>(m * n)};
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t c = 0; c < n; ++c) {
      double y = bias[c], scale = std::abs(bias[c]);
      for (int64_t i = 0; i < k; ++i) {
        const double product = left[r * k + i] * right[c * k + i];
        y += product;
        scale += std::abs(product);
      }
      result.y[r * n + c] = y;
      result.scale[r * n + c] = scale;
    }
  }
  return result;
}

bool same_bits(const float* a, const float* b, int64_t size) {
  return size == 0 || std::memcmp(a, b, size * sizeof(float)) == 0;
}

Linear identity(int64_t size, const MatrixKernels& kernels) {
  Values weight(size * size);
  for (int64_t i = 0; i < size; ++i) weight[i * size + i] = 1.0f;
  return Linear(weight.data(), nullptr, size, size, kernels);
}

// One shape on one set of kernels.
class ProductTest {
 public:
  ProductTest(const MatrixKernels& kernels, const std::string& name, Precision precision, int64_t n,
              int64_t k)
      : kernels_(kernels),
        precision_(precision),
        name_(name + " N " + std::to_string(n) + " K " + std::to_string(k)),
        n_(n),
        k_(k),
        weight_(random_values(2 * n * k, 1.0f / std::sqrt(static_cast<float>(k)))),
        bias_(random_values(2 * n, 1.0f)),
        x_(random_values(kMaxRows * k, 1.0f)),
        linear_(weight_.data(), bias_.data(), n, k, kernels),
        gated_(weight_.data(), bias_.data(), 2 * n, k, kernels),
        identity_(identity(n, kernels)) {}

  void run() {
    const Reference first = reference(x_, weight_, Values(bias_.begin(), bias_.begin() + n_), k_, precision_);
    const Values second_weight(weight_.begin() + n_ * k_, weight_.end());
    const Reference second =
        reference(x_, second_weight, Values(bias_.begin() + n_, bias_.end()), k_, precision_);
    const Bounds bounds = bounds_of(precision_);
    const Values stored = store(0, kMaxRows);
    const Values added = add(0, kMaxRows);
    const Values unbiased = store_without_bias();
    for (size_t i = 0; i < first.y.size(); ++i) {
      const double bound = bounds.product * first.scale[i], y = first.y[i];
      check_near(stored[i], y, bound, "store");
      check_near(added[i], residual(i) + y, bound + 1e-6 * std::abs(residual(i)), "add");
      check_near(unbiased[i], y - bias_[i % n_], bound, "no bias");
    }
    for (Activation activation : kActivations) {
      const Values one = activate(activation, 0, kMaxRows), two = activate_gated(activation, 0, kMaxRows);
      const std::string of = " activation " + std::to_string(static_cast<int>(activation));
      double step_of_one = 0, step_of_two = 0;
      for (size_t i = 0; i < first.y.size(); ++i) {
        const double y = activated(first.y[i], activation), gate = second.y[i];
        if (i % n_ == 0) {
          // A row's largest value may be off by as much as its step allows for.
          step_of_one = 1.01 * bounds.step * largest_of(one, i, n_);
          step_of_two = 1.01 * bounds.step * largest_of(two, i, n_);
        }
        // No activation is steeper than 1.2.
        const double bound = 1.2 * bounds.product * first.scale[i] + bounds.activation;
        check_near(one[i], y, bound + bounds.rounding * std::abs(y) + step_of_one, "activate" + of);
        check_near(two[i], y * gate,
                   (bound + bounds.product * second.scale[i]) * (1 + std::abs(gate) + std::abs(y)) +
                       bounds.rounding * std::abs(y * gate) + step_of_two,
                   "activate_gated" + of);
      }
    }
    check_rows(
        activate(Activation::gelu, 0, kMaxRows),
        [&](int64_t begin, int64_t m) { return activate(Activation::gelu, begin, m); }, "activate");
    check_rows(
        activate_gated(Activation::silu, 0, kMaxRows),
        [&](int64_t begin, int64_t m) { return activate_gated(Activation::silu, begin, m); },
        "activate_gated");
    check_rows(stored, [&](int64_t begin, int64_t m) { return store(begin, m); }, "store");
    check_rows(added, [&](int64_t begin, int64_t m) { return add(begin, m); }, "add");
  }

 private:
  // x's rows begin .. begin + m, in memory that held NaN everywhere.
  Operand operand(int64_t begin, int64_t m) const {
    Operand x(kernels_);
    poison(x, k_);
    x.resize(m, k_);
    // Two pieces, as a layer norm hands over row blocks.
    const int64_t half = m / 2;
    x.write(half, x_.data() + (begin + half) * k_, k_, m - half);
    x.write(0, x_.data() + begin * k_, k_, half);
    return x;
  }

  static void poison(Operand& x, int64_t num_columns) {
    const int64_t size = num_columns + 64, m = kMaxRows + 64;
    const Values nan(m * size, kNaN);
    x.resize(m, size);
    x.write(0, nan.data(), size, m);
  }

  // Rows further apart than they are long; what stands between and behind must stay.
  Values unstrided(const Values& out, int64_t m, float untouched) const {
    Values result;
    bool kept = true;
    for (size_t i = 0; i < out.size(); ++i) {
      const int64_t row = i / stride(), column = i % stride();
      if (row < m && column < n_)
        result.push_back(out[i]);
      else
        kept = kept && same_bits(&out[i], &untouched, 1);
    }
    check(kept, name_ + " wrote outside its rows or columns");
    return result;
  }

  int64_t stride() const { return n_ + 5; }

  Values store(int64_t begin, int64_t m) const {
    Values out(stride() * (m + 2), kNaN);
    linear_.store(operand(begin, m), out.data(), stride());
    return unstrided(out, m, kNaN);
  }

  Values store_without_bias() const {
    Values out(kMaxRows * n_, kNaN);
    Linear(weight_.data(), nullptr, n_, k_, kernels_).store(operand(0, kMaxRows), out.data(), n_);
    return out;
  }

  static float residual(int64_t index) { return 0.25f * static_cast<float>(index % 31) - 3.0f; }

  Values add(int64_t begin, int64_t m) const {
    Values out(stride() * (m + 2), kNaN);
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t c = 0; c < n_; ++c) out[r * stride() + c] = residual((begin + r) * n_ + c);
    }
    linear_.add(operand(begin, m), out.data(), stride());
    return unstrided(out, m, kNaN);
  }

  Values read(const Operand& x) const {
    Values out(x.num_rows() * n_);
    identity_.store(x, out.data(), n_);
    return out;
  }

  template <class Product>
  Values activate_with(const Product& product, Activation activation, int64_t begin, int64_t m) const {
    Operand out(kernels_);
    poison(out, n_);
    product.activate(operand(begin, m), activation, out);
    check(out.num_rows() == m && out.num_columns() == n_, name_ + " gives an operand of another shape");
    return read(out);
  }

  Values activate(Activation activation, int64_t begin, int64_t m) const {
    return activate_with(linear_, activation, begin, m);
  }

  Values activate_gated(Activation activation, int64_t begin, int64_t m) const {
    return activate_with(gated_, activation, begin, m);
  }

  // The last m of all rows give the bits they gave among all.
  template <class Call>
  void check_rows(const Values& all, Call&& call, const std::string& what) const {
    for (int64_t m : kRowCounts) {
      const int64_t begin = kMaxRows - m;
      const Values some = call(begin, m);
      check(same_bits(some.data(), all.data() + begin * n_, m * n_),
            name_ + " " + what + ": other bits for " + std::to_string(m) + " rows");
    }
  }

  void check_near(double result, double expected, double bound, const std::string& what) const {
    if (std::abs(result - expected) <= bound) return;
    check(false, name_ + " " + what + ": " + std::to_string(result) + " instead of " +
                     std::to_string(expected) + ", bound " + std::to_string(bound));
  }

  const MatrixKernels& kernels_;
  Precision precision_;
  std::string name_;
  int64_t n_, k_;
  Values weight_, bias_, x_;
  Linear linear_;
  GatedLinear gated_;
  Linear identity_;
};

// NaN and infinities stay in their rows, through two products and an activation.
void test_non_finite(const MatrixKernels& kernels, const std::string& name) {
  constexpr int64_t m = 40, n = 33, k = 70;
  const Values weight = random_values(n * k, 0.2f), second_weight = random_values(n * n, 0.2f);
  const Linear first(weight.data(), nullptr, n, k, kernels);
  const Linear second(second_weight.data(), nullptr, n, n, kernels);
  Values x = random_values(m * k, 1.0f);
  const auto forward = [&] {
    Operand operand(kernels), inner(kernels);
    operand.resize(m, k);
    operand.write(0, x.data(), k, m);
    first.activate(operand, Activation::gelu, inner);
    Values out(m * n);
    second.store(inner, out.data(), n);
    return out;
  };
  const Values clean = forward();
  x[3 * k + 69] = kNaN;
  x[17 * k] = std::numeric_limits<float>::infinity();
  x[39 * k + 5] = -std::numeric_limits<float>::infinity();
  const Values out = forward();
  for (int64_t r = 0; r < m; ++r) {
    if (r == 3) {
      for (int64_t c = 0; c < n; ++c) check(std::isnan(out[r * n + c]), name + ": NaN was lost");
    } else if (r != 17 && r != 39) {
      check(same_bits(&out[r * n], &clean[r * n], n), name + ": a row was changed by its neighbours");
    }
  }
}

void test_activations(const MatrixKernels& kernels, const std::string& name, Precision precision) {
  constexpr int64_t k = 32, m = 1000;
  const Linear same = identity(k, kernels);
  Values x(m * k);
  for (int64_t i = 0; i < m * k; ++i) {
    x[i] = -16.0f + static_cast<float>(i) * 0.001f;
    if (precision == Precision::bfloat16) x[i] = static_cast<float>(rounded_to_bf16(x[i]));
  }
  x[0] = -1e4f;
  x[1] = 1e4f;
  x[2] = -0.0f;
  Operand operand(kernels), out(kernels);
  operand.resize(m, k);
  operand.write(0, x.data(), k, m);
  Values results(m * k);
  const Bounds bounds = bounds_of(precision);
  for (Activation activation : kActivations) {
    same.activate(operand, activation, out);
    same.store(out, results.data(), k);
    for (int64_t i = 0; i < m * k; ++i) {
      const double y = activated(x[i], activation);
      if (std::abs(results[i] - y) <= bounds.activation + (bounds.rounding + bounds.product) * std::abs(y))
        continue;
      check(false, name + " activation " + std::to_string(static_cast<int>(activation)) + " of " +
                       std::to_string(x[i]) + " gives " + std::to_string(results[i]) + " instead of " +
                       std::to_string(y));
    }
  }
}

// On well-scaled data the exact precisions stay within 1e-5 of the largest result.
void test_relative_error(const MatrixKernels& kernels, const std::string& name, Precision precision) {
  constexpr int64_t m = 40, n = 64;
  for (int64_t k : {64, 384, 1536, 3072}) {
    const Values x = random_values(m * k, 1.0f), weight = random_values(n * k, 0.05f), bias(n);
    Operand operand(kernels);
    operand.resize(m, k);
    operand.write(0, x.data(), k, m);
    Values results(m * n);
    Linear(weight.data(), nullptr, n, k, kernels).store(operand, results.data(), n);
    const Reference expected = reference(x, weight, bias, k, precision);
    double error = 0, largest = 0;
    for (int64_t i = 0; i < m * n; ++i) {
      error = std::max(error, std::abs(results[i] - expected.y[i]));
      largest = std::max(largest, std::abs(expected.y[i]));
    }
    check(error <= 1e-5 * largest,
          name + " K " + std::to_string(k) + ": relative error " + std::to_string(error / largest));
  }
}

// Factors that are bfloat16 already give the same bits taken as they are.
void test_bf16_words(const MatrixKernels& kernels, const std::string& name) {
  for (const auto& [m, n, k] : {std::tuple{1, 1, 1}, {3, 33, 50}, {17, 64, 33}, {33, 31, 128}}) {
    const Values x = random_values(m * k, 1.0f), weight = random_values(n * k, 1.0f), bias = random_values(n, 1.0f);
    std::vector<uint16_t> x_words(x.size()), weight_words(weight.size());
    std::transform(x.begin(), x.end(), x_words.begin(), to_bf16);
    std::transform(weight.begin(), weight.end(), weight_words.begin(), to_bf16);
    Operand rounded(kernels), taken(kernels);
    rounded.resize(m, k);
    rounded.write(0, x.data(), k, m);
    taken.resize(m, k);
    taken.write_bf16(0, x_words.data(), k, m);
    Linear linear(kernels), of_words(kernels);
    linear.assign(rows_of(weight.data(), k), bias.data(), n, k);
    // Over an older, larger weight, whose words must not shine through.
    of_words.assign(rows_of(Values(2 * n * k, 1.0f).data(), k), nullptr, 2 * n, k);
    of_words.assign_bf16(weight_words.data(), bias.data(), n, k);
    Values expected(m * n), found(m * n, std::numeric_limits<float>::quiet_NaN());
    linear.store(rounded, expected.data(), n);
    of_words.store(taken, found.data(), n);
    check(expected == found, name + " words of " + std::to_string(n) + " by " + std::to_string(k));
  }
}

// More rows than stay in L2 (but in int8), with weights that do (33 columns) and that do not: the same bits as a few
// rows at a time, and as bfloat16 the same values rounded.
void test_chunks(const MatrixKernels& kernels, const std::string& name, Precision precision) {
  constexpr int64_t k = 4096, few = 34;
  const int64_t m = precision == Precision::int8 ? 340 : 170;
  const Values x = random_values(m * k, 1.0f);
  for (int64_t n : {int64_t{33}, m}) {
    const Values weight = random_values(n * k, 0.05f), bias = random_values(n, 1.0f);
    const Linear linear(weight.data(), bias.data(), n, k, kernels);
    const Linear sum(Values(n, 1.0f).data(), nullptr, 1, n, kernels);
    Operand all(kernels), some(kernels), activated(kernels);
    all.resize(m, k);
    all.write(0, x.data(), k, m);
    Values out(m * n, kNaN), part(few * n), added(m * n, 0.0f), sums(m, kNaN), part_sums(few);
    linear.store(all, out.data(), n);
    linear.add(all, added.data(), n);
    check(added == out, name + ": many rows added to zeros, " + std::to_string(n) + " columns");
    linear.activate(all, Activation::gelu, activated);
    sum.store(activated, sums.data(), 1);
    for (int64_t first = 0; first < m; first += few) {
      const std::string rows = ": rows " + std::to_string(first) + " and on of many, " + std::to_string(n) + " columns";
      some.resize(few, k);
      some.write(0, x.data() + first * k, k, few);
      linear.store(some, part.data(), n);
      check(std::equal(part.begin(), part.end(), out.begin() + first * n), name + rows);
      linear.activate(some, Activation::gelu, activated);
      sum.store(activated, part_sums.data(), 1);
      check(std::equal(part_sums.begin(), part_sums.end(), sums.begin() + first), name + rows + ", activated");
    }
    if (kernels.store_bf16 == nullptr) continue;
    const int64_t columns = (n + 31) / 32 * 32, plane = columns / 2, stride = kernels.num_planes * plane;
    Values whole(columns * k);
    AlignedBuffer words;
    std::fill_n(words.reserve(m * stride + 1), m * stride + 1, kNaN);
    std::copy(weight.begin(), weight.end(), whole.begin());
    Values whole_bias(columns);
    std::copy(bias.begin(), bias.end(), whole_bias.begin());
    Linear(whole.data(), whole_bias.data(), columns, k, kernels).store_bf16(all, {words.data(), stride, plane});
    for (int64_t i = 0; i < m * n; ++i) {
      float rest = out[i];
      for (int64_t p = 0; p < kernels.num_planes; ++p) {
        const float* row = words.data() + i / n * stride + p * plane;
        const uint16_t part = reinterpret_cast<const uint16_t*>(row)[i % n];
        check(part == to_bf16(rest), name + ": results as bfloat16, plane " + std::to_string(p));
        rest -= bf16_to_f32(part);
      }
    }
    check(std::isnan(words.data()[m * stride]), name + ": results as bfloat16 end where they should");
  }
}

// Rows that the caller writes as bfloat16 are those that write() rounds, to int8 from bfloat16.
void test_rounded_rows(const MatrixKernels& kernels, const std::string& name) {
  for (const auto& [m, k] : {std::pair{1, 32}, {3, 64}, {40, 384}}) {
    Values x = random_values(m * k, 1.0f), out(m), expected(m);
    for (float& value : x) value = std::bit_cast<float>(uint32_t{to_bf16(value)} << 16);
    const Linear sum(Values(k, 1.0f).data(), nullptr, 1, k, kernels);
    Operand written(kernels), rounded(kernels);
    written.resize(m, k);
    written.write(0, x.data(), k, m);
    sum.store(written, expected.data(), 1);
    rounded.resize(m, k);
    const OperandView view = rounded.view();
    for (int64_t i = 0; i < m * k; ++i) {
      reinterpret_cast<uint16_t*>(view.words + i / k * view.stride)[i % k] = to_bf16(x[i]);
    }
    rounded.round_bf16();
    sum.store(rounded, out.data(), 1);
    check(out == expected, name + ": rows written as bfloat16");
  }
}

void test_threads(const MatrixKernels& kernels, const std::string& name) {
  constexpr int64_t m = 65, n = 96, k = 128;
  const Values weight = random_values(n * k, 0.1f), x = random_values(m * k, 1.0f);
  const Linear linear(weight.data(), nullptr, n, k, kernels);
  Operand operand(kernels);
  operand.resize(m, k);
  operand.write(0, x.data(), k, m);
  Values expected(m * n);
  linear.store(operand, expected.data(), n);
  Values results[2] = {Values(m * n), Values(m * n)};
  bool same[2] = {true, true};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        linear.store(operand, results[t].data(), n);
        same[t] = same[t] && same_bits(results[t].data(), expected.data(), m * n);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  check(same[0] && same[1], name + ": threads disturb each other");
}

void test_misuse(const MatrixKernels& kernels, const MatrixKernels& other, const std::string& name) {
  const Values weight(12, 1.0f);
  const Linear linear(weight.data(), nullptr, 3, 4, kernels);
  Operand narrow(kernels), foreign(other), right(kernels);
  narrow.resize(1, 3);
  foreign.resize(1, 4);
  right.resize(1, 4);
  Values out(3);
  check_throws<std::invalid_argument>([&] { linear.store(narrow, out.data(), 3); }, name + " wrong K");
  check_throws<std::invalid_argument>([&] { linear.add(foreign, out.data(), 3); }, name + " foreign operand");
  check_throws<std::invalid_argument>([&] { linear.activate(right, Activation::none, foreign); },
                                      name + " foreign result");
  check_throws<std::invalid_argument>([&] { linear.activate(right, Activation::none, right); },
                                      name + " in place");
  if (kernels.store_bf16 == nullptr) {
    check_throws<std::invalid_argument>([&] { linear.store_bf16(right, {out.data(), 16, 8}); }, name + " as bfloat16");
  }
}

}  // namespace

int main() {
  for (Isa isa : available_isas()) {
    for (Precision precision : kPrecisions) {
      const MatrixKernels& kernels = matrix_kernels(precision, isa);
      const std::string name = std::string(precision_name(precision)) + " on " + isa_name(isa);
      for (int64_t n : kSizes) {
        for (int64_t k : kSizes) ProductTest(kernels, name, precision, n, k).run();
      }
      test_non_finite(kernels, name);
      // int8 rounds a whole row to one scale and activates as bfloat16 does.
      if (precision != Precision::int8) test_activations(kernels, name, precision);
      test_relative_error(kernels, name, precision);
      test_chunks(kernels, name, precision);
      if (rounds_to_bf16(precision)) test_rounded_rows(kernels, name);
      test_threads(kernels, name);
      if (precision == Precision::bfloat16) test_bf16_words(kernels, name);
      test_misuse(
          kernels,
          matrix_kernels(precision == Precision::float32 ? Precision::bfloat16 : Precision::float32, isa),
          name);
    }
  }
  return mlmfast::testing::report("matrix_test");
}
