// GFLOP/s of matrix products by shape, precision and instruction set, one thread: the median of many calls in
// the thread's own CPU time, which does not count what other processes take. Usage: matrix_bench [instruction
// set]
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "mlmfast/matrix.h"

namespace {

using namespace mlmfast;

constexpr int64_t kNumRows = 512;
constexpr int kNumCalls = 101, kNumWarmups = 5;

struct Shape {
  int64_t num_rows, num_columns;  // N, K
};

constexpr Shape kShapes[] = {{1152, 384}, {384, 384}, {1536, 384}, {384, 1536}, {2304, 768}, {3072, 768}};

double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Call>
double median_gflops(const Shape& shape, double num_products, Call&& call) {
  std::vector<double> seconds;
  for (int i = 0; i < kNumWarmups; ++i) call();
  for (int i = 0; i < kNumCalls; ++i) {
    const double begin = cpu_seconds();
    call();
    seconds.push_back(cpu_seconds() - begin);
  }
  std::nth_element(seconds.begin(), seconds.begin() + kNumCalls / 2, seconds.end());
  return 2e-9 * kNumRows * shape.num_rows * shape.num_columns * num_products / seconds[kNumCalls / 2];
}

std::vector<float> random_values(int64_t size, float scale) {
  static std::mt19937 generator(1);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(size);
  for (float& value : values) value = normal(generator);
  return values;
}

void measure(const Shape& shape, Precision precision, Isa isa) {
  const auto [n, k] = shape;
  const MatrixKernels& kernels = matrix_kernels(precision, isa);
  const std::vector<float> weight = random_values(2 * n * k, 0.05f), bias = random_values(2 * n, 1.0f);
  const std::vector<float> x = random_values(kNumRows * k, 1.0f);
  const Linear linear(weight.data(), bias.data(), n, k, kernels);
  const GatedLinear gated(weight.data(), bias.data(), 2 * n, k, kernels);
  Operand operand(kernels), result(kernels);
  operand.resize(kNumRows, k);
  operand.write(0, x.data(), k, kNumRows);
  std::vector<float> out(kNumRows * n);
  std::printf("%-10s %-12s N %4ld K %4ld", precision_name(precision), isa_name(isa), n, k);
  std::printf("  store %5.0f", median_gflops(shape, 1, [&] { linear.store(operand, out.data(), n); }));
  std::printf("  add %5.0f", median_gflops(shape, 1, [&] { linear.add(operand, out.data(), n); }));
  for (const auto& [name, activation] : {std::pair{"none", Activation::none},
                                         {"gelu", Activation::gelu},
                                         {"gelu_tanh", Activation::gelu_tanh},
                                         {"relu", Activation::relu}}) {
    std::printf("  %s %5.0f", name,
                median_gflops(shape, 1, [&] { linear.activate(operand, activation, result); }));
  }
  std::printf("  geglu %5.0f\n",
              median_gflops(shape, 2, [&] { gated.activate(operand, Activation::gelu, result); }));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  for (Precision precision : kPrecisions) {
    for (Isa isa : available_isas()) {
      const bool duplicate = precision == Precision::float32 && isa > Isa::avx512;
      if (duplicate || (!only.empty() && only != isa_name(isa))) continue;
      for (const Shape& shape : kShapes) measure(shape, precision, isa);
    }
  }
}
