// Vector operations on AVX-512 registers, products of int8 in hardware.
#pragma once

#include "cpu/vec_avx512.h"

namespace mlmfast {
namespace {

struct Avx512Vnni : Avx512 {
  // The hardware takes unsigned bytes on the left.
  static constexpr int kLeftOffset = 128;
  static void store_int8(int8_t* p, Vec a) {
    const __m128i bytes = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_xor_si128(bytes, _mm_set1_epi8(-128)));
  }
  // total + the 4 products of a's unsigned and b's signed bytes, for every word. Of the intrinsic, gcc 12 copies every
  // total between registers.
  static Vec dot_int8(Vec a, Vec b, Vec total) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(total) : "v"(a), "v"(b));
    return total;
  }
};

}  // namespace
}  // namespace mlmfast
