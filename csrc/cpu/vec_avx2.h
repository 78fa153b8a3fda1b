// Vector operations on AVX2 registers.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace mlmfast {
namespace {

struct Avx2 {
  using Vec = __m256;
  static constexpr int kWidth = 8;
  static constexpr int kBlockRows = 6;  // 12 accumulators, two panel vectors and a broadcast: 15 of 16

  static Vec load(const float* p) { return _mm256_load_ps(p); }
  static Vec load_unaligned(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Vec a) { _mm256_store_ps(p, a); }
  static void store_unaligned(float* p, Vec a) { _mm256_storeu_ps(p, a); }
  static Vec set1(float a) { return _mm256_set1_ps(a); }
  static Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
  static Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
  static Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
  static Vec reciprocal(Vec a) { return _mm256_div_ps(set1(1.0f), a); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
  // b where either is NaN.
  static Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
  static Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
  static Vec round(Vec a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // p 2^n for integral n, p in [0.5, 2) and a normal result.
  static Vec times_power_of_two(Vec p, Vec n) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
  }
  static Vec if_less(Vec a, Vec b, Vec then, Vec otherwise) {
    return _mm256_blendv_ps(otherwise, then, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  static uint32_t greater_bits(Vec a, Vec b) {
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)));
  }
  // rows [kWidth, kWidth] to their transpose.
  static void transpose(Vec (&rows)[kWidth]) {
    __m256 groups[kWidth];  // of 4 rows: lane l of groups[4 g + c] holds column 4 l + c
#pragma GCC unroll 2
    for (int g = 0; g < kWidth; g += 4) {
      const __m256d low_ab = _mm256_castps_pd(_mm256_unpacklo_ps(rows[g], rows[g + 1]));
      const __m256d high_ab = _mm256_castps_pd(_mm256_unpackhi_ps(rows[g], rows[g + 1]));
      const __m256d low_cd = _mm256_castps_pd(_mm256_unpacklo_ps(rows[g + 2], rows[g + 3]));
      const __m256d high_cd = _mm256_castps_pd(_mm256_unpackhi_ps(rows[g + 2], rows[g + 3]));
      groups[g] = _mm256_castpd_ps(_mm256_unpacklo_pd(low_ab, low_cd));
      groups[g + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low_ab, low_cd));
      groups[g + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(high_ab, high_cd));
      groups[g + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(high_ab, high_cd));
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      rows[c] = _mm256_permute2f128_ps(groups[c], groups[4 + c], 0x20);
      rows[4 + c] = _mm256_permute2f128_ps(groups[c], groups[4 + c], 0x31);
    }
  }
  static float reduce_add(Vec a) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
  }
  static float reduce_max(Vec a) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
  }

  static Vec load_bf16(const uint16_t* p) {
    const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
  }
  // max(|a|, largest) of non-negative `largest`, and of every bfloat16 of the words.
  static Vec larger_magnitude(Vec a, Vec largest) {
    const __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7fffffff));
    return _mm256_castsi256_ps(_mm256_max_epi32(magnitude, _mm256_castps_si256(largest)));
  }
  static Vec larger_bf16_magnitude(Vec words, Vec largest) {
    const __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(words), _mm256_set1_epi32(0x7fff7fff));
    return _mm256_castsi256_ps(_mm256_max_epu16(magnitude, _mm256_castps_si256(largest)));
  }
  // To the nearest integers, which must be within int8 where a is finite.
  static void store_int8(int8_t* p, Vec a) {
    const __m256i words = _mm256_cvtps_epi32(a);
    const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(halves, halves));
  }
  static Vec from_int32(Vec bits) { return _mm256_cvtepi32_ps(_mm256_castps_si256(bits)); }
  static Vec add_int32(Vec a, Vec b) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
  }
  // total + the 4 products of a's and b's bytes, for every word.
  static Vec dot_int8(Vec a, Vec b, Vec total) {
    const __m256i left = _mm256_castps_si256(a), right = _mm256_castps_si256(b);
    const auto even = [](__m256i bytes) { return _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8); };
    const auto odd = [](__m256i bytes) { return _mm256_srai_epi16(bytes, 8); };
    const __m256i products = _mm256_add_epi32(_mm256_madd_epi16(even(left), even(right)),
                                              _mm256_madd_epi16(odd(left), odd(right)));
    return add_int32(total, _mm256_castsi256_ps(products));
  }

  // To the nearest bfloat16, ties to even; NaN stays NaN.
  static Vec round_bf16(Vec a) {
    const __m256i bits = _mm256_castps_si256(a);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256 rounded = _mm256_blendv_ps(_mm256_castsi256_ps(up), _mm256_castsi256_ps(quiet),
                                            _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    return second_bf16(rounded);
  }
  // Words of two bfloat16 each: left's values, then right's; both are bfloat16 already.
  static Vec pack_bf16(Vec left, Vec right) {
    const __m256i low = _mm256_srli_epi32(_mm256_castps_si256(left), 16);
    const __m256i high = _mm256_srli_epi32(_mm256_castps_si256(right), 16);
    return _mm256_castsi256_ps(_mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8));
  }
  // Words of two bfloat16 each, lane by lane; both are bfloat16 already.
  static Vec interleave_bf16(Vec first, Vec second) {
    return _mm256_castsi256_ps(
        _mm256_or_si256(_mm256_srli_epi32(_mm256_castps_si256(first), 16), _mm256_castps_si256(second)));
  }
  // The first and the second bfloat16 of every word.
  static Vec first_bf16(Vec words) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(words), 16));
  }
  static Vec second_bf16(Vec words) {
    return _mm256_and_ps(words, _mm256_castsi256_ps(_mm256_set1_epi32(-0x10000)));
  }
};

}  // namespace
}  // namespace mlmfast
