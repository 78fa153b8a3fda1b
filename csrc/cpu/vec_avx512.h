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
  static void store_unaligned(float* p, Vec a) { _mm512_storeu_ps(p, a); }
  static Vec set1(float a) { return _mm512_set1_ps(a); }
  static Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  static Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
  static Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
  // 1 / a to about 1 ulp, for normal a and 1 / a.
  static Vec reciprocal(Vec a) {
    const Vec r = _mm512_rcp14_ps(a);
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(a, r, set1(1.0f)), r, r);
  }
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
  // rows [kWidth, kWidth] to their transpose.
  static void transpose(Vec (&rows)[kWidth]) {
    __m512 groups[kWidth];  // of 4 rows: lane l of groups[4 g + c] holds column 4 l + c
#pragma GCC unroll 4
    for (int g = 0; g < kWidth; g += 4) {
      const __m512d low_ab = _mm512_castps_pd(_mm512_unpacklo_ps(rows[g], rows[g + 1]));
      const __m512d high_ab = _mm512_castps_pd(_mm512_unpackhi_ps(rows[g], rows[g + 1]));
      const __m512d low_cd = _mm512_castps_pd(_mm512_unpacklo_ps(rows[g + 2], rows[g + 3]));
      const __m512d high_cd = _mm512_castps_pd(_mm512_unpackhi_ps(rows[g + 2], rows[g + 3]));
      groups[g] = _mm512_castpd_ps(_mm512_unpacklo_pd(low_ab, low_cd));
      groups[g + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low_ab, low_cd));
      groups[g + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high_ab, high_cd));
      groups[g + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high_ab, high_cd));
    }
    constexpr int kEvenLanes = 0x88, kOddLanes = 0xdd;
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const Vec even_ab = _mm512_shuffle_f32x4(groups[c], groups[4 + c], kEvenLanes);
      const Vec odd_ab = _mm512_shuffle_f32x4(groups[c], groups[4 + c], kOddLanes);
      const Vec even_cd = _mm512_shuffle_f32x4(groups[8 + c], groups[12 + c], kEvenLanes);
      const Vec odd_cd = _mm512_shuffle_f32x4(groups[8 + c], groups[12 + c], kOddLanes);
      rows[c] = _mm512_shuffle_f32x4(even_ab, even_cd, kEvenLanes);
      rows[4 + c] = _mm512_shuffle_f32x4(odd_ab, odd_cd, kEvenLanes);
      rows[8 + c] = _mm512_shuffle_f32x4(even_ab, even_cd, kOddLanes);
      rows[12 + c] = _mm512_shuffle_f32x4(odd_ab, odd_cd, kOddLanes);
    }
  }
  static float reduce_add(Vec a) { return _mm512_reduce_add_ps(a); }
  static float reduce_max(Vec a) { return _mm512_reduce_max_ps(a); }

  static Vec load_bf16(const uint16_t* p) {
    const __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
  }
  // max(|a|, largest) of non-negative `largest`, and of every bfloat16 of the words.
  static Vec larger_magnitude(Vec a, Vec largest) {
    const __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7fffffff));
    return _mm512_castsi512_ps(_mm512_max_epi32(magnitude, _mm512_castps_si512(largest)));
  }
  static Vec larger_bf16_magnitude(Vec words, Vec largest) {
    const __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(words), _mm512_set1_epi32(0x7fff7fff));
    return _mm512_castsi512_ps(_mm512_max_epu16(magnitude, _mm512_castps_si512(largest)));
  }
  // To the nearest integers, which must be within int8 where a is finite.
  static void store_int8(int8_t* p, Vec a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a)));
  }
  static Vec from_int32(Vec bits) { return _mm512_cvtepi32_ps(_mm512_castps_si512(bits)); }
  static Vec add_int32(Vec a, Vec b) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
  }

  // To the nearest bfloat16, ties to even; NaN stays NaN.
  static Vec round_bf16(Vec a) {
    const __m512i bits = _mm512_castps_si512(a);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __m512i rounded = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), up, quiet);
    return _mm512_castsi512_ps(_mm512_and_si512(rounded, _mm512_set1_epi32(-0x10000)));
  }
  // Words of two bfloat16 each: left's values, then right's; both are bfloat16 already.
  static Vec pack_bf16(Vec left, Vec right) {
    const __m256i low = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(left), 16));
    const __m256i high = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(right), 16));
    return _mm512_castsi512_ps(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
  }
  // Words of two bfloat16 each, lane by lane; both are bfloat16 already.
  static Vec interleave_bf16(Vec first, Vec second) {
    return _mm512_castsi512_ps(
        _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(first), 16), _mm512_castps_si512(second)));
  }
  // The first and the second bfloat16 of every word.
  static Vec first_bf16(Vec words) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(words), 16));
  }
  static Vec second_bf16(Vec words) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(words), _mm512_set1_epi32(-0x10000)));
  }
};

}  // namespace
}  // namespace mlmfast
