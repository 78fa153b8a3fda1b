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
  static void store_unaligned(float* p, Vec a) { store(p, a); }
  static Vec set1(float a) { return Vec{a, a, a, a}; }
  static Vec add(Vec a, Vec b) { return a + b; }
  static Vec sub(Vec a, Vec b) { return a - b; }
  static Vec mul(Vec a, Vec b) { return a * b; }
  static Vec reciprocal(Vec a) { return set1(1.0f) / a; }
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
    const UintVec bits = to_bits(p);
    return from_bits(n == n ? bits + (to_bits(shifted) << 23) : bits);
  }
  static Vec if_less(Vec a, Vec b, Vec then, Vec otherwise) { return a < b ? then : otherwise; }
  static uint32_t greater_bits(Vec a, Vec b) {
    const IntVec mask = a > b;
    return (mask[0] & 1u) | (mask[1] & 2u) | (mask[2] & 4u) | (mask[3] & 8u);
  }
  // rows [kWidth, kWidth] to their transpose.
  static void transpose(Vec (&rows)[kWidth]) {
    for (int r = 0; r < kWidth; ++r) {
      for (int c = 0; c < r; ++c) {
        const float above = rows[c][r];
        rows[c][r] = rows[r][c];
        rows[r][c] = above;
      }
    }
  }
  static float reduce_add(Vec a) { return (a[0] + a[2]) + (a[1] + a[3]); }
  static float reduce_max(Vec a) {
    const float even = a[0] > a[2] ? a[0] : a[2], odd = a[1] > a[3] ? a[1] : a[3];
    return even > odd ? even : odd;
  }

  static Vec load_bf16(const uint16_t* p) {
    return from_bits(UintVec{p[0], p[1], p[2], p[3]} << 16);
  }
  // max(|a|, largest) of non-negative `largest`, and of every bfloat16 of the words.
  static Vec larger_magnitude(Vec a, Vec largest) {
    const UintVec magnitude = to_bits(a) & 0x7fffffff, other = to_bits(largest);
    return from_bits(magnitude > other ? magnitude : other);
  }
  static Vec larger_bf16_magnitude(Vec words, Vec largest) {
    const UintVec magnitude = to_bits(words) & 0x7fff7fff, other = to_bits(largest);
    const UintVec low = magnitude & 0xffff, high = magnitude >> 16, other_low = other & 0xffff, other_high = other >> 16;
    return from_bits((low > other_low ? low : other_low) | (high > other_high ? high : other_high) << 16);
  }
  // To the nearest integers, which must be within int8 where a is finite.
  static void store_int8(int8_t* p, Vec a) {
    const Vec whole = round(a);
    for (int i = 0; i < kWidth; ++i) p[i] = a[i] == a[i] ? static_cast<int8_t>(whole[i]) : int8_t{0};
  }
  static Vec from_int32(Vec bits) { return __builtin_convertvector(to_int32(bits), Vec); }
  static Vec add_int32(Vec a, Vec b) { return from_bits(to_bits(a) + to_bits(b)); }
  // total + the 4 products of a's and b's bytes, for every word.
  static Vec dot_int8(Vec a, Vec b, Vec total) {
    IntVec sum = to_int32(total), left = to_int32(a), right = to_int32(b);
    for (int shift = 24; shift >= 0; shift -= 8) {
      sum += ((left << shift) >> 24) * ((right << shift) >> 24);
    }
    Vec result;
    std::memcpy(&result, &sum, sizeof result);
    return result;
  }

  // To the nearest bfloat16, ties to even; NaN stays NaN.
  static Vec round_bf16(Vec a) {
    const UintVec bits = to_bits(a);
    const UintVec up = bits + 0x7fff + ((bits >> 16) & 1);
    return second_bf16(from_bits(a == a ? up : bits | 0x400000));
  }
  // Words of two bfloat16 each: left's values, then right's; both are bfloat16 already.
  static Vec pack_bf16(Vec left, Vec right) {
    const UintVec l = to_bits(left), r = to_bits(right);
    const UintVec first = {l[0], l[2], r[0], r[2]}, second = {l[1], l[3], r[1], r[3]};
    return from_bits((first >> 16) | second);
  }
  // Words of two bfloat16 each, lane by lane; both are bfloat16 already.
  static Vec interleave_bf16(Vec first, Vec second) {
    return from_bits((to_bits(first) >> 16) | to_bits(second));
  }
  // The first and the second bfloat16 of every word.
  static Vec first_bf16(Vec words) { return from_bits(to_bits(words) << 16); }
  static Vec second_bf16(Vec words) { return from_bits(to_bits(words) & 0xffff0000); }

 private:
  typedef uint32_t UintVec __attribute__((vector_size(16)));
  static UintVec to_bits(Vec a) {
    UintVec bits;
    std::memcpy(&bits, &a, sizeof bits);
    return bits;
  }
  static IntVec to_int32(Vec a) {
    IntVec integers;
    std::memcpy(&integers, &a, sizeof integers);
    return integers;
  }
  static Vec from_bits(UintVec bits) {
    Vec a;
    std::memcpy(&a, &bits, sizeof a);
    return a;
  }
};

}  // namespace
}  // namespace mlmfast
