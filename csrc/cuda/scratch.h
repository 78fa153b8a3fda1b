// Scratch memory, and the counts that go with it.
#pragma once

#include <cstdint>

namespace mlmfast::cuda {

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

// Where several arrays lie in one piece of scratch memory; also counts the bytes.
class Scratch {
 public:
  explicit Scratch(void* memory = nullptr) : start_(reinterpret_cast<uintptr_t>(memory)) {}

  template <class T>
  T* take(int64_t size) {
    T* array = reinterpret_cast<T*>(start_ + num_bytes_);
    num_bytes_ += round_up(size * int64_t{sizeof(T)}, 16);
    return array;
  }
  int64_t num_bytes() const { return num_bytes_; }

 private:
  uintptr_t start_;
  int64_t num_bytes_ = 0;
};

}  // namespace mlmfast::cuda
