// The CUDA head through its C interface against its definition in extended precision. Runs on a GPU, and in the
// emulation with smaller problems.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "cuda/tests/head_case.h"

namespace {

using namespace mlmfast::testing;

constexpr double kTolerance = 2e-5;
constexpr float kInfinity = INFINITY;

bool near(double value, double expected, double slack = 0) {
  return std::abs(value - expected) <= kTolerance * (1 + std::abs(expected)) + slack;
}

void check_results(const HeadInputs& inputs, const HeadResults& results, const std::string& name) {
  for (int64_t row = 0; row < inputs.problem.num_rows; ++row) {
    const ReferenceHeadRow expected(inputs, row);
    const std::string of_row = name + "row " + std::to_string(row) + ": ";
    const double slack = expected.slack;
    check(near(results.lse[row], expected.lse, slack), of_row + "lse");
    check(near(results.entropy[row], expected.entropy, slack) && results.entropy[row] >= 0, of_row + "entropy");
    for (int64_t t = inputs.target_offsets[row]; t < inputs.target_offsets[row + 1]; ++t) {
      const int32_t id = inputs.target_ids[t];
      const double logit = expected.logits[id], margin = kTolerance * (1 + std::abs(logit)) + 2 * slack;
      check(near(results.logit[t], logit, slack), of_row + "logit");
      check(near(results.log_prob[t], logit - expected.lse, 2 * slack), of_row + "log_prob");
      check(results.rank[t] >= expected.rank(id, margin) && results.rank[t] < expected.rank(id, -margin),
            of_row + "rank");
    }
  }
}

bool same_results(const HeadResults& a, const HeadResults& b) {
  return same_bits(a.log_prob, b.log_prob) && same_bits(a.logit, b.logit) && same_bits(a.lse, b.lse) &&
         same_bits(a.entropy, b.entropy) && same_bits(a.rank, b.rank);
}

void test_case(const HeadCase& c) {
  const HeadInputs inputs(c);
  const HeadResults results = run_head(inputs);
  check_results(inputs, results, c.name());
  check(same_results(results, run_backwards([&] { return run_head(inputs); })), c.name() + "the same bits again");
  check(same_bits(results.log_prob, run_head(inputs, false).log_prob), c.name() + "log_prob alone has the same bits");
}

void test_types() {
  for (const int32_t type : {MLMFAST_CUDA_FLOAT32, MLMFAST_CUDA_BFLOAT16}) {
    for (const int32_t bias_type : {MLMFAST_CUDA_FLOAT32, MLMFAST_CUDA_BFLOAT16}) {
      test_case({.N = 6, .V = 251, .D = 64, .type = type, .bias_type = bias_type, .spread = 4.0f});
    }
    test_case({.N = 6, .V = 251, .D = 64, .type = type, .has_bias = false});
  }
}

void test_shapes() {
  for (const int32_t type : {MLMFAST_CUDA_FLOAT32, MLMFAST_CUDA_BFLOAT16}) {
    for (const int64_t V : {1, 2, 127, 128, 129}) test_case({.N = 3, .V = V, .D = 7, .type = type});
    test_case({.N = 1, .V = 128, .D = 1, .type = type, .has_bias = false});
    // Several tiles of rows, classes and features.
    test_case({.N = 130, .V = 300, .D = 136, .type = type, .spread = 2.0f});
    // Several tiles of classes for every block.
    test_case({.N = 3, .V = 1200, .D = 8, .type = type});
    // Rows of odd length, and rows that would be aligned but for where they start.
    test_case({.N = 3, .V = 140, .D = 71, .type = type});
    test_case({.N = 3, .V = 140, .D = 64, .type = type, .offset = 1});
    // More targets than a block has threads, all in one row; none; no rows.
    test_case({.N = 4, .V = 200, .D = 16, .type = type, .num_targets = {0, 700, 1, 0}});
    test_case({.N = 130, .V = 20, .D = 8, .type = type, .num_targets = {0}});
    test_case({.N = 0, .V = 20, .D = 8, .type = type});
  }
}

// Small whole numbers: every logit is exact, and many are equal.
void test_ties() {
  for (const int32_t type : {MLMFAST_CUDA_FLOAT32, MLMFAST_CUDA_BFLOAT16}) {
    const HeadCase c{.N = 20, .V = 500, .D = 24, .type = type};
    const auto whole_numbers = [](int64_t size) {
      std::vector<float> values = normal_values(size, 1.0f);
      for (float& x : values) x = std::round(x);
      return values;
    };
    const HeadInputs inputs(c, whole_numbers(c.N * c.D), whole_numbers(c.V * c.D), whole_numbers(c.V));
    const HeadResults results = run_head(inputs);
    for (int64_t row = 0; row < c.N; ++row) {
      const ReferenceHeadRow expected(inputs, row);
      for (int64_t t = inputs.target_offsets[row]; t < inputs.target_offsets[row + 1]; ++t) {
        check(results.logit[t] == expected.logits[inputs.target_ids[t]], "ties: logit");
        check(results.rank[t] == expected.rank(inputs.target_ids[t], 0.0), "ties: rank");
      }
    }
  }
}

// One row whose logits are given, every class a target.
HeadResults of_logits(const std::vector<float>& logits) {
  const int64_t V = static_cast<int64_t>(logits.size());
  const HeadCase c{.N = 1, .V = V, .D = 1, .num_targets = {V}};
  HeadInputs inputs(c, {0.0f}, std::vector<float>(V, 0.0f), logits);
  for (int64_t k = 0; k < V; ++k) inputs.target_ids[k] = static_cast<int32_t>(k);
  inputs.device_ids.write(inputs.target_ids.data());
  return run_head(inputs);
}

void test_extreme_logits() {
  std::vector<float> logits(1300, -20.0f);
  logits[700] = 2.0f;
  HeadResults results = of_logits(logits);
  const double others = 1299 * std::exp(-22.0);
  check(std::abs(results.log_prob[700] / -std::log1p(others) - 1) < 1e-5, "a log_prob near 0 keeps its digits");
  check(std::abs(results.entropy[0] / (std::log1p(others) + 22 * others / (1 + others)) - 1) < 1e-5,
        "an entropy near 0 keeps its digits");

  for (const float size : {1e30f, 3e38f}) {
    logits.assign(300, -size);
    logits[5] = logits[250] = size;
    results = of_logits(logits);
    check(near(results.log_prob[5], -std::log(2.0)) && near(results.entropy[0], std::log(2.0)), "two huge ones");
    check(results.lse[0] == size, "a huge lse");
    check(results.rank[5] == 0 && results.rank[250] == 0 && results.rank[6] == 2, "ranks of huge ones");
  }

  // Whole tiles of -inf before and after.
  logits.assign(1300, -kInfinity);
  logits[600] = 1.0f;
  logits[601] = 0.0f;
  results = of_logits(logits);
  const double p = 1 / (1 + std::exp(-1.0));
  check(near(results.log_prob[600], std::log(p)) && results.log_prob[0] == -kInfinity, "-inf: log_prob");
  check(results.logit[0] == -kInfinity && results.rank[0] == 2 && results.rank[601] == 1, "-inf: logit and rank");
  check(near(results.entropy[0], -p * std::log(p) - (1 - p) * std::log(1 - p)), "-inf: entropy");
  check(near(results.lse[0], 1 - std::log(p)), "-inf: lse");
}

void test_no_distribution() {
  for (const int64_t place : {0, 7, 299}) {
    for (const float bad : {NAN, kInfinity, -kInfinity}) {
      std::vector<float> logits(300, bad == -kInfinity ? bad : 1.0f);
      logits[place] = bad;
      const HeadResults results = of_logits(logits);
      check(std::isnan(results.lse[0]) && std::isnan(results.entropy[0]), "no distribution: lse and entropy");
      for (size_t k = 0; k < logits.size(); ++k) {
        check(std::isnan(results.log_prob[k]) && results.rank[k] == -1, "no distribution: log_prob and rank");
        check(std::isnan(logits[k]) ? std::isnan(results.logit[k]) : results.logit[k] == logits[k],
              "no distribution: logit");
      }
    }
  }
}

// A row of NaN, and targets that are no classes, leave the others as they were.
void test_bad_rows() {
  for (const int32_t type : {MLMFAST_CUDA_FLOAT32, MLMFAST_CUDA_BFLOAT16}) {
    const HeadCase c{.N = 9, .V = 200, .D = 40, .type = type, .num_targets = {2}};
    HeadInputs inputs(c);
    const HeadResults good = run_head(inputs);
    std::vector<float> values = inputs.hidden.host;
    values[1 * c.D + 5] = NAN;
    const Values bad_hidden(values, type);
    inputs.problem.hidden = bad_hidden.device.get();
    inputs.target_ids[4] = -1;
    inputs.target_ids[17] = static_cast<int32_t>(c.V);
    inputs.device_ids.write(inputs.target_ids.data());
    const HeadResults results = run_head(inputs, true, 1.0f);
    for (int64_t t = 0; t < 2 * c.N; ++t) {
      if (t == 2 || t == 3 || t == 4 || t == 17) {
        check(std::isnan(results.log_prob[t]) && std::isnan(results.logit[t]) && results.rank[t] == -1, "a bad target");
      } else {
        check(results.log_prob[t] == good.log_prob[t] && results.logit[t] == good.logit[t] &&
                  results.rank[t] == good.rank[t],
              "a target beside bad ones");
      }
    }
    for (int64_t row = 0; row < c.N; ++row) {
      if (row == 1) {
        check(std::isnan(results.lse[row]) && std::isnan(results.entropy[row]), "a bad row");
      } else {
        check(results.lse[row] == good.lse[row] && results.entropy[row] == good.entropy[row], "a row beside a bad one");
      }
    }
  }
}

void test_vocabularies() {
  for (const int32_t type : {MLMFAST_CUDA_FLOAT32, MLMFAST_CUDA_BFLOAT16}) {
    test_case({.N = 150, .V = 30522, .D = 64, .type = type});
    test_case({.N = 3, .V = 30522, .D = 1000, .type = type, .spread = 4.0f});
    test_case({.N = 3, .V = 250002, .D = 64, .type = type, .spread = 8.0f, .num_targets = {5}});
  }
}

void test_misuse() {
  const HeadInputs inputs({.N = 2, .V = 10, .D = 8, .num_targets = {1}});
  const DeviceArray log_prob(8);
  int64_t num_bytes = 0;
  succeed(mlmfast_cuda_head_scratch(&inputs.problem, &num_bytes), "scratch");
  const DeviceArray scratch(num_bytes);
  mlmfast_cuda_head_outputs outputs{};
  outputs.log_prob = static_cast<float*>(log_prob.get());
  const auto head = [&](const mlmfast_cuda_head_problem* problem, int64_t scratch_bytes) {
    return mlmfast_cuda_head(problem, &outputs, scratch.get(), scratch_bytes, nullptr);
  };
  const auto check_refused = [](int status, const char* word) {
    check(status != 0, std::string("no error: ") + word);
    check(std::strstr(mlmfast_cuda_last_error(), word) != nullptr, mlmfast_cuda_last_error());
  };
  const auto refuses = [&](auto&& spoil, const char* word) {
    mlmfast_cuda_head_problem problem = inputs.problem;
    spoil(problem);
    check_refused(head(&problem, num_bytes), word);
  };
  refuses([](auto& p) { p.num_rows = -1; }, "num_rows");
  refuses([](auto& p) { p.num_rows = 0; }, "num_targets");
  refuses([](auto& p) { p.num_classes = 0; }, "num_classes");
  refuses([](auto& p) { p.hidden_size = 0; }, "hidden_size");
  refuses([](auto& p) { p.num_targets = -1; }, "num_targets");
  refuses([](auto& p) { p.type = 5; }, "type");
  refuses([](auto& p) { p.bias_type = -1; }, "bias_type");
  refuses([](auto& p) { p.hidden = nullptr; }, "hidden");
  refuses([](auto& p) { p.weight = nullptr; }, "weight");
  refuses([](auto& p) { p.target_offsets = nullptr; }, "target_offsets");
  refuses([](auto& p) { p.target_ids = nullptr; }, "target_ids");
  check_refused(head(nullptr, num_bytes), "problem");
  check_refused(head(&inputs.problem, num_bytes - 1), "scratch");
  check_refused(mlmfast_cuda_head(&inputs.problem, nullptr, scratch.get(), num_bytes, nullptr), "outputs");
  check_refused(mlmfast_cuda_head_scratch(&inputs.problem, nullptr), "num_bytes");
  check(head(&inputs.problem, num_bytes) == 0, "and the right one works");
  outputs.log_prob = nullptr;
  check_refused(head(&inputs.problem, num_bytes), "log_prob");
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  check(mlmfast_cuda_head_version() == MLMFAST_CUDA_HEAD_VERSION, "version");
}

}  // namespace

int main() {
  test_types();
  test_shapes();
  test_ties();
  test_extreme_logits();
  test_no_distribution();
  test_bad_rows();
  if (kOnGpu) test_vocabularies();
  test_misuse();
  return report("head_test");
}
