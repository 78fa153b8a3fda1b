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
      const size_t wanted = static_cast<size_t>(size) * sizeof(float);
      const size_t alignment = wanted < kHugePage ? kLine : kHugePage;
      const size_t bytes = (wanted + alignment - 1) / alignment * alignment;
      data_.reset();
      capacity_ = 0;
      data_.reset(static_cast<float*>(std::aligned_alloc(alignment, bytes)));
      if (!data_) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
      if (alignment == kHugePage) madvise(data_.get(), bytes, MADV_HUGEPAGE);
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
