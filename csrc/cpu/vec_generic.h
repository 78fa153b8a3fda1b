// Vector operations in portable C++ (gcc and clang vector types), for any CPU.
#pragma once

#include <cstdint>
#include <cstring>

namespace mlmfast {
namespace {

struct Generic {
  typedef float Vec __attribute__((vector_size(16)));
  typedef int32_t IntVec __attribute__((vector_size(16)));
  static constexpr int kWidth = 4;
  static constexpr int kBlockRows = 4;  // 8 accumulators of the 16 registers a plain CPU has

  static Vec load(const float* p) { return load_unaligned(p); }
  static Vec load_unaligned(const float* p) {
    Vec a;
    std::memcpy(&a, p, sizeof a);
    return a;
  }
  static void store(float* p, Vec a) { std::memcpy(p, &a, sizeof a); }
  static Vec set1(float a) { return Vec{a, a, a, a}; }
  static Vec add(Vec a, Vec b) { return a + b; }
  static Vec sub(Vec a, Vec b) { return a - b; }
  static Vec mul(Vec a, Vec b) { return a * b; }
  // Not fused: a fused product in software would be many times slower.
  static Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
  // b where either is NaN.
  static Vec max(Vec a, Vec b) { return a > b ? a : b; }
  static Vec min(Vec a, Vec b) { return a < b ? a : b; }
  // For |a| < 2^22, by adding and removing 1.5 2^23.
  static Vec round(Vec a) {
    const Vec shift = set1(12582912.0f);
    return (a + shift) - shift;
  }
  // p 2^n for integral n, p in [0.5, 2) and a normal result.
  static Vec times_power_of_two(Vec p, Vec n) {
    const Vec shifted = n + set1(12582912.0f);  // n stands in the low bits of the mantissa
    IntVec bits, exponent;
    std::memcpy(&bits, &p, sizeof bits);
    std::memcpy(&exponent, &shifted, sizeof exponent);
    bits = n == n ? bits + (exponent << 23) : bits;
    Vec y;
    std::memcpy(&y, &bits, sizeof y);
    return y;
  }
  static Vec if_less(Vec a, Vec b, Vec then, Vec otherwise) { return a < b ? then : otherwise; }
  static uint32_t greater_bits(Vec a, Vec b) {
    const IntVec mask = a > b;
    return (mask[0] & 1u) | (mask[1] & 2u) | (mask[2] & 4u) | (mask[3] & 8u);
  }
  static float reduce_add(Vec a) { return (a[0] + a[2]) + (a[1] + a[3]); }
  static float reduce_max(Vec a) {
    const float even = a[0] > a[2] ? a[0] : a[2], odd = a[1] > a[3] ? a[1] : a[3];
    return even > odd ? even : odd;
  }
};

}  // namespace
}  // namespace mlmfast
