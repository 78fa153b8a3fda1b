#include "cpu/packed_attention.h"

#include <algorithm>

#include "cpu/amx_session.h"
#include "cpu/vec_avx512_bf16.h"

namespace mlmfast {
namespace {

using Ops = Avx512Bf16;
using Vec = Ops::Vec;

constexpr int64_t kTileRows = 16, kTileWords = 16, kTileSize = kTileRows * kTileWords;
constexpr int64_t kQueryBlock = 2 * kTileRows;
constexpr int64_t kScoreWords = 6 * 1024;  // the scores of heads that go side by side stay in L1

// To whole steps of 32 keys.
int64_t padded_length(int64_t length) { return (length + 2 * kTileRows - 1) / (2 * kTileRows) * (2 * kTileRows); }

// The scratch memory of heads that go side by side, for sequences of up to `length` tokens: keys [key tiles, steps,
// word, key] and values [steps of 32 keys, tiles of features, pair of keys, feature] as right operands; scores
// [kQueryBlock, padded length], which become the weights, in place; outputs [kQueryBlock, head_size].
struct Layout {
  int64_t num_heads, keys, values, scores, outputs;

  Layout(int64_t length, int64_t all_heads, int64_t head_size) {
    const int64_t padded = padded_length(length);
    num_heads = std::clamp<int64_t>(kScoreWords / (std::min(kQueryBlock, padded) * padded), 1, all_heads);
    keys = values = padded * head_size / 2;
    scores = kQueryBlock * padded;
    outputs = kQueryBlock * head_size;
  }
  int64_t words() const { return num_heads * (keys + values + scores + outputs); }
};

int64_t scratch(int64_t longest, int64_t num_heads, int64_t head_size) {
  // Fewer heads go side by side the longer a sequence is.
  int64_t most = 0;
  for (int64_t length = 1; length < longest + 2 * kTileRows; length += 2 * kTileRows) {
    most = std::max(most, Layout(std::min(length, longest), num_heads, head_size).words());
  }
  return most;
}

// keys [length, stride] words to tiles [key tiles, steps, word, key].
void pack_keys(const float* keys, int64_t stride, int64_t length, int64_t num_steps, float* tiles) {
  for (int64_t first = 0; first < length; first += kTileRows) {
    for (int64_t step = 0; step < num_steps; ++step, tiles += kTileSize) {
      const float* from = keys + first * stride + step * kTileWords;
      Vec rows[kTileRows];
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) rows[r] = Ops::load_unaligned(from + r * stride);
      Ops::transpose(rows);
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) Ops::store(tiles + r * kTileWords, rows[r]);
    }
  }
}

// values [length, stride] words to tiles [steps of 32 keys, tiles of 16 features, pair of keys, feature], zeros behind
// the last key.
void pack_values(const float* values, int64_t stride, int64_t length, int64_t head_size, float* tiles) {
  alignas(64) static constexpr int16_t kLow[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                   8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low = _mm512_load_si512(kLow), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  const int64_t num_tiles = head_size / kTileWords, padded = padded_length(length);
  for (int64_t key = 0; key < padded; key += 2) {
    float* to = tiles + key / (2 * kTileRows) * num_tiles * kTileSize + key / 2 % kTileRows * kTileWords;
    for (int64_t tile = 0; tile < num_tiles; tile += 2, to += 2 * kTileSize) {
      const float* from = values + key * stride + tile * (kTileWords / 2);
      const __m512i zero = _mm512_setzero_si512();
      const __m512i first = key < length ? _mm512_loadu_si512(from) : zero;
      const __m512i second = key + 1 < length ? _mm512_loadu_si512(from + stride) : zero;
      _mm512_store_si512(to, _mm512_permutex2var_epi16(first, low, second));
      _mm512_store_si512(to + kTileSize, _mm512_permutex2var_epi16(first, high, second));
    }
  }
}

// A left operand, rows `stride` words apart, and a right one of tiles: the next in the columns is `next` words
// further, and the next in K `step`.
struct Left {
  const float* words;
  int64_t stride;
};
struct Right {
  const float* tiles;
  int64_t next, step;
};

template <bool kTwoRows, bool kTwoColumns>
void multiply(const Left& left, const Right& right, int64_t num_steps, float* out, int64_t out_stride) {
  const int64_t left_bytes = left.stride * sizeof(float), out_bytes = out_stride * sizeof(float);
  __asm__ volatile("" ::: "memory");  // the tile loads do not tell the compiler what they read
  _tile_zero(0);
  if constexpr (kTwoColumns) _tile_zero(1);
  if constexpr (kTwoRows) _tile_zero(2);
  if constexpr (kTwoRows && kTwoColumns) _tile_zero(3);
  for (int64_t step = 0; step < num_steps; ++step) {
    const float *words = left.words + step * kTileWords, *tiles = right.tiles + step * right.step;
    _tile_loadd(4, words, left_bytes);
    _tile_loadd(6, tiles, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTwoColumns) {
      _tile_loadd(7, tiles + right.next, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kTwoRows) {
      _tile_loadd(5, words + kTileRows * left.stride, left_bytes);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kTwoColumns) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, out, out_bytes);
  if constexpr (kTwoColumns) _tile_stored(1, out + kTileWords, out_bytes);
  if constexpr (kTwoRows) _tile_stored(2, out + kTileRows * out_stride, out_bytes);
  if constexpr (kTwoRows && kTwoColumns) _tile_stored(3, out + kTileRows * out_stride + kTileWords, out_bytes);
  __asm__ volatile("" ::: "memory");
}

// out [num_rows <= kQueryBlock, num_columns], rows and columns up to whole tiles.
void multiply(const Left& left, const Right& right, int64_t num_rows, int64_t num_columns, int64_t num_steps,
              float* out, int64_t out_stride) {
  const bool two_rows = num_rows > kTileRows;
  Right tiles = right;
  for (int64_t column = 0; column < num_columns; column += 2 * kTileWords, tiles.tiles += 2 * right.next) {
    const bool two_columns = num_columns - column > kTileWords;
    const auto kernel = two_rows ? (two_columns ? multiply<true, true> : multiply<true, false>)
                                 : (two_columns ? multiply<false, true> : multiply<false, false>);
    kernel(left, tiles, num_steps, out + column, out_stride);
  }
}

// 2^x for x <= 0 within 1e-4 of it: far less than bfloat16 rounds off. 0 for -inf, where p is NaN and n -inf: scalef
// has it so.
Vec power_of_two(Vec x) {
  const Vec n = Ops::round(x), f = Ops::sub(x, n);
  Vec p = Ops::set1(0.05517166f);
  p = Ops::fma(p, f, Ops::set1(0.24261116f));
  p = Ops::fma(p, f, Ops::set1(0.69326099f));
  p = Ops::fma(p, f, Ops::set1(0.99992807f));
  return _mm512_scalef_ps(p, n);
}

// scores [stride], of which `length` count, to weights 2^(scale (score - max)) as bfloat16, in place, zeros up to whole
// steps of 32 keys; returns 1 / the weights' sum.
float exponentiate(float* scores, int64_t length, float scale) {
  const Vec none = Ops::set1(-__builtin_inff());
  const int64_t padded = padded_length(length);
  const auto load = [&](int64_t k) {
    if (k + kTileWords <= length) return Ops::load(scores + k);
    const __mmask16 mask = k < length ? (1u << (length - k)) - 1 : 0;
    return _mm512_mask_load_ps(none, mask, scores + k);
  };
  Vec max = load(0);
  for (int64_t k = kTileWords; k < length; k += kTileWords) max = Ops::max(max, load(k));
  // Scaled first, large scores would keep the rounding error of their maximum.
  const Vec factor = Ops::set1(scale), most = Ops::set1(Ops::reduce_max(max));
  const auto weigh = [&](Vec score) { return power_of_two(Ops::mul(Ops::sub(score, most), factor)); };
  const Vec zero = Ops::set1(0.0f);
  Vec sums = zero;
  for (int64_t k = 0; k < padded; k += 2 * kTileWords) {
    const Vec left = weigh(load(k));
    const Vec right = k + kTileWords < length ? weigh(load(k + kTileWords)) : zero;
    sums = Ops::add(sums, Ops::add(left, right));
    Ops::store(scores + k / 2, Ops::round_and_pack_bf16(left, right));
  }
  return 1.0f / Ops::reduce_add(sums);
}

class Heads {
 public:
  Heads(const PackedAttention& a, int64_t length, float* memory)
      : a_(a), length_(length), layout_(length, a.num_heads, a.head_size),
        padded_(padded_length(length)), num_steps_(a.head_size / (2 * kTileWords)) {
    keys_ = memory;
    values_ = keys_ + layout_.num_heads * layout_.keys;
    scores_ = values_ + layout_.num_heads * layout_.values;
    outputs_ = scores_ + layout_.num_heads * layout_.scores;
  }

  void attend(int64_t sequence) {
    const int64_t row = a_.row_starts[sequence];
    const int64_t first_query = a_.query_starts[sequence] - a_.query_starts[0];
    const int64_t last_query = a_.query_starts[sequence + 1] - a_.query_starts[0];
    for (int64_t head = 0; head < a_.num_heads; head += layout_.num_heads) {
      const int64_t count = std::min(layout_.num_heads, a_.num_heads - head);
      for (int64_t h = 0; h < count; ++h) {
        const int64_t place = row * a_.key_stride + (head + h) * a_.head_size / 2;
        pack_keys(a_.keys + place, a_.key_stride, length_, num_steps_, keys_ + h * layout_.keys);
        pack_values(a_.values + place, a_.key_stride, length_, a_.head_size, values_ + h * layout_.values);
      }
      for (int64_t query = first_query; query < last_query; query += kQueryBlock) {
        attend(head, count, query, std::min(kQueryBlock, last_query - query));
      }
    }
  }

 private:
  void attend(int64_t head, int64_t count, int64_t query, int64_t num_queries) {
    const float scale = a_.scale * 1.44269504f;
    float factors[kQueryBlock];
    for (int64_t h = 0; h < count; ++h) {
      const float* queries = a_.queries + query * a_.query_stride + (head + h) * a_.head_size / 2;
      multiply({queries, a_.query_stride}, {keys_ + h * layout_.keys, num_steps_ * kTileSize, kTileSize}, num_queries,
               length_, num_steps_, scores_ + h * layout_.scores, padded_);
    }
    for (int64_t h = 0; h < count; ++h) {
      float *scores = scores_ + h * layout_.scores, *outputs = outputs_ + h * layout_.outputs;
      for (int64_t q = 0; q < num_queries; ++q) factors[q] = exponentiate(scores + q * padded_, length_, scale);
      multiply({scores, padded_}, {values_ + h * layout_.values, kTileSize, a_.head_size / kTileWords * kTileSize},
               num_queries, a_.head_size, padded_ / (2 * kTileWords), outputs, a_.head_size);
      for (int64_t q = 0; q < num_queries; ++q) {
        const Vec factor = Ops::set1(factors[q]);
        const float* from = outputs + q * a_.head_size;
        float* to = a_.output.words + (query + q) * a_.output.stride + (head + h) * a_.head_size / 2;
        for (int64_t i = 0; i < a_.head_size; i += 2 * kTileWords) {
          Ops::store_unaligned(to + i / 2, Ops::round_and_pack_bf16(Ops::mul(Ops::load(from + i), factor),
                                                                    Ops::mul(Ops::load(from + i + kTileWords), factor)));
        }
      }
    }
  }

  const PackedAttention& a_;
  const int64_t length_;
  const Layout layout_;
  const int64_t padded_, num_steps_;
  float *keys_, *values_, *scores_, *outputs_;
};

void attend(const PackedAttention& a, float* memory) {
  const AmxSession session;
  for (int64_t s = 0; s < a.num_sequences; ++s) {
    if (a.query_starts[s + 1] > a.query_starts[s]) Heads(a, a.row_starts[s + 1] - a.row_starts[s], memory).attend(s);
  }
}

}  // namespace

extern const PackedAttentionKernels kPackedAttentionAmx = {attend, scratch};

}  // namespace mlmfast
