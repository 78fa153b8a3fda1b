// Vector operations on AVX-512 registers.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace mlmfast {
namespace {

struct Avx512 {
  using Vec = __m512;
  static constexpr int kWidth = 16;
  static constexpr int kBlockRows = 14;  // 28 accumulators, two panel vectors and a broadcast: 31 of 32

  static Vec load(const float* p) { return _mm512_load_ps(p); }
  static Vec load_unaligned(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Vec a) { _mm512_store_ps(p, a); }
  static Vec set1(float a) { return _mm512_set1_ps(a); }
  static Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  static Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
  static Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
  // b where either is NaN.
  static Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
  static Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
  static Vec round(Vec a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // p 2^n for integral n, p in [0.5, 2) and a normal result.
  static Vec times_power_of_two(Vec p, Vec n) {
    const __m512i exponent = _mm512_slli_epi32(_mm512_cvtps_epi32(n), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), exponent));
  }
  static Vec if_less(Vec a, Vec b, Vec then, Vec otherwise) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), otherwise, then);
  }
  static uint32_t greater_bits(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
  static float reduce_add(Vec a) { return _mm512_reduce_add_ps(a); }
  static float reduce_max(Vec a) { return _mm512_reduce_max_ps(a); }
};

}  // namespace
}  // namespace mlmfast
