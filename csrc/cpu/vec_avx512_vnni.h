// Vector operations on AVX-512 registers, products of int8 in hardware.
#pragma once

#include "cpu/vec_avx512.h"

namespace mlmfast {
namespace {

struct Avx512Vnni : Avx512 {
  static constexpr int kBlockRows = 12;

  // The hardware takes unsigned bytes on the left.
  static Vec add_128(Vec words) {
    return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(words), _mm512_set1_epi8(-128)));
  }
  // total + the 4 products of a's unsigned and b's signed bytes, for every word.
  static Vec dot_int8(Vec a, Vec b, Vec total) {
    return _mm512_castsi512_ps(
        _mm512_dpbusd_epi32(_mm512_castps_si512(total), _mm512_castps_si512(a), _mm512_castps_si512(b)));
  }
};

}  // namespace
}  // namespace mlmfast
