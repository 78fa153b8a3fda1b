// Vector operations on AVX-512 registers, bfloat16 in hardware.
#pragma once

#include "cpu/vec_avx512.h"

namespace mlmfast {
namespace {

struct Avx512Bf16 : Avx512 {
  static Vec round_bf16(Vec a) {
    const __m256bh rounded = _mm512_cvtneps_pbh(a);
    __m256i bits;
    __builtin_memcpy(&bits, &rounded, sizeof bits);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  // Words of two bfloat16 each: left's values, then right's, to the nearest, ties to even.
  static Vec round_and_pack_bf16(Vec left, Vec right) { return from_bf16(_mm512_cvtne2ps_pbh(right, left)); }
  // total + first a * first b + second a * second b, for every word.
  static Vec dot_bf16(Vec a, Vec b, Vec total) { return _mm512_dpbf16_ps(total, to_bf16(a), to_bf16(b)); }

 private:
  static __m512bh to_bf16(Vec words) {
    __m512bh bf16;
    __builtin_memcpy(&bf16, &words, sizeof bf16);
    return bf16;
  }
  static Vec from_bf16(__m512bh bf16) {
    Vec words;
    __builtin_memcpy(&words, &bf16, sizeof words);
    return words;
  }
};

}  // namespace
}  // namespace mlmfast
