// Float memory for kernels: 64-byte aligned, in huge pages when it is large, never shrinking.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace mlmfast {

class AlignedBuffer {
 public:
  // At least `size` floats; the content is lost when the buffer grows.
  float* reserve(int64_t size) {
    if (size > capacity_) {
      constexpr size_t kLine = 64, kHugePage = size_t{1} << 21;
      const size_t bytes = static_cast<size_t>(size) * sizeof(float);
      data_.reset();
      capacity_ = 0;
      void* memory = nullptr;
      if (posix_memalign(&memory, bytes < kHugePage ? kLine : kHugePage, bytes) != 0) throw std::bad_alloc();
      data_.reset(static_cast<float*>(memory));
#ifdef MADV_HUGEPAGE
      // Whole ones, so that the last takes no more memory than is used.
      if (bytes >= kHugePage) madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
      capacity_ = size;
    }
    return data_.get();
  }

  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(float* pointer) const { std::free(pointer); }
  };
  std::unique_ptr<float, Free> data_;
  int64_t capacity_ = 0;
};

}  // namespace mlmfast
