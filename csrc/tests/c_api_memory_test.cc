// Memory that runs out, from every allocation on in turn: a status, nothing thrown, and the next call works.
#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "c_api_testing.h"
#include "check.h"

namespace {

// Allocations left before all fail; negative: none does.
std::atomic<int64_t> allocations_left = -1;
std::atomic<bool> has_failed = false;

}  // namespace

// The library's allocations come here, too. Memory of kernels (aligned_alloc) does not.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  if (allocations_left == 0) {
    has_failed = true;
    return nullptr;
  }
  if (allocations_left > 0) --allocations_left;
  return std::malloc(size > 0 ? size : 1);
}
void* operator new(size_t size) {
  void* memory = operator new(size, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

using namespace mlmfast::testing;

namespace {

// Calls until no allocation fails; how many did. The call itself must not allocate but in the library.
template <class Call>
int64_t fail_each_allocation(Call call, const std::string& what) {
  for (int64_t n = 0;; ++n) {
    has_failed = false;
    allocations_left = n;
    const mlmfast_status status = call();
    allocations_left = -1;
    if (!has_failed) {
      check(status == MLMFAST_OK, what + ": " + mlmfast_last_error());
      return n;
    }
    // std::stable_sort does without the memory it wanted.
    check(status == MLMFAST_OUT_OF_MEMORY || status == MLMFAST_OK,
          what + ": status " + std::to_string(status) + ", " + mlmfast_last_error());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string folder = std::string(argv[1]) + "/bert";
  int num_wrong = 0;
  const int64_t in_load = fail_each_allocation(
      [&] {
        mlmfast_model* model = nullptr;
        const mlmfast_status status = mlmfast_load(folder.c_str(), nullptr, &model);
        num_wrong += (model != nullptr) != (status == MLMFAST_OK);
        mlmfast_free(model);
        return status;
      },
      "load");
  check(in_load > 100 && num_wrong == 0, "a load fails at its allocations, and leaves no model then");

  const ModelHandle model = load_model(folder);
  const std::vector<int32_t> ids = text_of(60, 320);
  std::vector<float> expected(60), found(60);
  const auto score = [&](std::vector<float>& log_probs) {
    return mlmfast_score_text(model.get(), ids.data(), 60, nullptr, 60, log_probs.data());
  };
  check(fail_each_allocation([&] { return score(found); }, "score_text") > 3, "allocations of a score fail");
  check(score(expected) == MLMFAST_OK && found == expected, "scores after memory ran out");
  return report("c_api_memory_test");
}
