// The same normal values in every run of a test program.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace mlmfast::testing {

inline std::vector<float> random_values(int64_t size, float scale) {
  static std::mt19937 generator(7);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(size);
  for (float& value : values) value = normal(generator);
  return values;
}

}  // namespace mlmfast::testing
