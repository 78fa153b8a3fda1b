// Several threads at once: scoring with one model while others are loaded and freed, each with its own errors.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "c_api_testing.h"
#include "check.h"

using namespace mlmfast::testing;

namespace {

constexpr int kThreads = 4, kRounds = 12;

// Texts of lengths of the thread's own, so that scratch grows at different times.
std::vector<float> score_some(const mlmfast_model* model, int thread, int round) {
  const mlmfast_info info = info_of(model);
  const int64_t length = 1 + (thread * 17 + round * 5) % info.max_length;
  const std::vector<int32_t> ids = text_of(length, info.vocab_size);
  std::vector<float> log_probs(length);
  const mlmfast_status status = mlmfast_score_text(model, ids.data(), length, nullptr, length, log_probs.data());
  return status == MLMFAST_OK ? log_probs : std::vector<float>();
}

// Whether a thread's error is its own, whatever the others do.
bool fails_with_own_message(const mlmfast_model* model, int thread) {
  const int32_t wrong = -1 - thread;
  float log_prob;
  return mlmfast_score_text(model, &wrong, 1, nullptr, 1, &log_prob) == MLMFAST_INVALID_ARGUMENT &&
         std::string(mlmfast_last_error()).find("is " + std::to_string(wrong) + ",") != std::string::npos;
}

void test_model(const std::string& folder) {
  const ModelHandle model = load_model(folder);
  if (!model) return check(false, folder + " loads: " + mlmfast_last_error());
  std::vector<std::vector<std::vector<float>>> expected(kThreads), found(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    for (int r = 0; r < kRounds; ++r) expected[t].push_back(score_some(model.get(), t, r));
  }
  std::atomic<int> num_own_errors = 0, num_loaded = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int r = 0; r < kRounds; ++r) {
        found[t].push_back(score_some(model.get(), t, r));
        num_own_errors += fails_with_own_message(model.get(), t);
      }
    });
  }
  threads.emplace_back([&] {
    for (int r = 0; r < kRounds; ++r) {
      const ModelHandle another = load_model(folder);
      num_loaded += another != nullptr && score_some(another.get(), 0, r) == expected[0][r];
    }
  });
  for (std::thread& thread : threads) thread.join();
  check(found == expected && !expected[0][0].empty(), folder + " scores of threads");
  check(num_own_errors == kThreads * kRounds, folder + " errors of threads");
  check(num_loaded == kRounds, folder + " loading while scoring");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string models = argv[1];
  for (const char* name : {"bert", "modernbert", "esm2"}) test_model(models + "/" + name);
  return report("c_api_threads_test");
}
