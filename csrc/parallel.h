// The same work in several threads, started and joined within the call, so that a process may fork between calls.
#pragma once

#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace mlmfast {

// work(0) .. work(count - 1), each in a thread of its own as far as threads are to be had, the others in this one.
// Throws what the first of them that failed threw.
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
  threads.reserve(count);
  int64_t num_started = 1;
  try {
    for (; num_started < count; ++num_started) threads.emplace_back(guarded, num_started);
  } catch (const std::system_error&) {
  }
  guarded(0);
  for (int64_t i = num_started; i < count; ++i) guarded(i);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace mlmfast
