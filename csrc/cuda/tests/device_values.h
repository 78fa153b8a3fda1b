// Arrays on the device for the tests of the CUDA kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda/platform.h"
#include "mlmfast/cuda_api.h"
#include "tests/check.h"

namespace mlmfast::testing {

using cuda::bf16;

#ifdef __CUDACC__
constexpr bool kOnGpu = true;
#else
constexpr bool kOnGpu = false;
#endif

inline void require(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(2);
}

// An array on the device, filled with NaN, with a guard behind it that must stay as it was.
class DeviceArray {
 public:
  explicit DeviceArray(int64_t num_bytes) : num_bytes_(num_bytes) {
    const std::vector<unsigned char> fill(num_bytes + kGuard, 0xff);
    require(cudaMalloc(&memory_, fill.size()), "cudaMalloc");
    require(cudaMemcpy(memory_, fill.data(), fill.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() {
    std::vector<unsigned char> guard(kGuard);
    const unsigned char* end = static_cast<unsigned char*>(memory_) + num_bytes_;
    require(cudaMemcpy(guard.data(), end, kGuard, cudaMemcpyDeviceToHost), "cudaMemcpy");
    check(std::all_of(guard.begin(), guard.end(), [](unsigned char x) { return x == 0xff; }), "written past an end");
    require(cudaFree(memory_), "cudaFree");
  }

  void* get() const { return memory_; }
  void write(const void* values) {
    if (num_bytes_ == 0) return;
    require(cudaMemcpy(memory_, values, num_bytes_, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  template <class T>
  std::vector<T> read() const {
    std::vector<T> values(num_bytes_ / sizeof(T));
    if (num_bytes_ == 0) return values;
    require(cudaMemcpy(values.data(), memory_, num_bytes_, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return values;
  }

 private:
  static constexpr int64_t kGuard = 256;
  void* memory_ = nullptr;
  int64_t num_bytes_;
};

inline int64_t size_of(int32_t type) { return type == MLMFAST_CUDA_BFLOAT16 ? 2 : 4; }

// Values that `type` holds, on the host in float and on the device in `type`.
struct Values {
  std::vector<float> host;
  DeviceArray device;

  Values(const std::vector<float>& values, int32_t type)
      : host(values), device(static_cast<int64_t>(values.size()) * size_of(type)) {
    if (type == MLMFAST_CUDA_FLOAT32) {
      device.write(host.data());
      return;
    }
    std::vector<bf16> rounded;
    for (float& x : host) {
      rounded.push_back(__float2bfloat16(x));
      x = __bfloat162float(rounded.back());
    }
    device.write(rounded.data());
  }
};

inline std::vector<float> read_as_float(const DeviceArray& array, int32_t type) {
  if (type == MLMFAST_CUDA_FLOAT32) return array.read<float>();
  std::vector<float> values;
  for (const bf16 x : array.read<bf16>()) values.push_back(__bfloat162float(x));
  return values;
}

inline std::mt19937 generator(11);

inline std::vector<float> normal_values(int64_t size, float scale) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(size);
  for (float& x : values) x = normal(generator);
  return values;
}

inline void succeed(int status, const std::string& what) {
  if (status != 0) check(false, what + mlmfast_cuda_last_error());
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// What run() gives with blocks and their threads in the other order; on a GPU, once more.
template <class Run>
auto run_backwards(Run&& run) {
#ifndef __CUDACC__
  cuda::emulation::backwards = true;
#endif
  const auto outputs = run();
#ifndef __CUDACC__
  cuda::emulation::backwards = false;
#endif
  return outputs;
}

}  // namespace mlmfast::testing
