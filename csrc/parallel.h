// The same work in several threads, started and joined within the call, so that a process may fork between calls.
#pragma once

#include <exception>
#include <thread>
#include <vector>

namespace mlmfast {

// work(0) in this thread, work(1) .. work(count - 1) beside it. Throws what the first of them that failed threw.
template <class Work>
void in_parallel(int64_t count, const Work& work) {
  std::vector<std::exception_ptr> errors(count);
  const auto guarded = [&](int64_t i) {
    try {
      work(i);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < count; ++i) threads.emplace_back(guarded, i);
  guarded(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace mlmfast
