// Attention over packed operands, written once over a Products struct: a format of factors, and how rows of it are
// multiplied with tiles.
#pragma once

#include <algorithm>

#include "cpu/exp.h"
#include "cpu/matrix_gemm.h"
#include "cpu/packed_attention.h"
#include "cpu/vec_avx512_bf16.h"

namespace mlmfast {
namespace {

constexpr int64_t kTileRows = 16, kTileWords = 16, kTileSize = kTileRows * kTileWords;
constexpr int64_t kScoreWords = 6 * 1024;  // the scores of heads that go side by side stay in L1

// To whole steps of 32 keys.
int64_t padded_length(int64_t length) { return (length + 2 * kTileRows - 1) / (2 * kTileRows) * (2 * kTileRows); }

// A left operand: rows `stride` words apart; of a row, the next kTileWords words are `step` further, and the low parts
// `plane`.
struct Left {
  const float* words;
  int64_t stride, step, plane;
};
// A right one of tiles [word, column]: the next in the columns is `next` words further, in K `step`, and that of the
// low parts `plane`.
struct Right {
  const float* tiles;
  int64_t next, step, plane;
};

template <class Products>
class Heads {
  using Format = typename Products::Format;
  using Ops = typename Format::Ops;
  using Vec = typename Ops::Vec;
  static constexpr int64_t kQueryBlock = Products::kQueryBlock;
  static constexpr int64_t kNumPlanes = Format::kNumPlanes;

  // The scratch memory of heads that go side by side, for sequences of up to `length` tokens: keys [planes, key tiles,
  // steps, word, key] and values [planes, steps of 32 keys, tiles of features, pair of keys, feature] as right
  // operands; scores [kQueryBlock, padded length], which become the weights, in place; outputs [kQueryBlock, head_size].
  struct Layout {
    int64_t num_heads, plane, keys, values, scores, outputs;

    Layout(int64_t length, int64_t all_heads, int64_t head_size) {
      const int64_t padded = padded_length(length);
      num_heads = std::clamp<int64_t>(kScoreWords / (std::min(kQueryBlock, padded) * padded), 1, all_heads);
      plane = padded * head_size / 2;
      keys = values = kNumPlanes * plane;
      scores = kQueryBlock * padded;
      outputs = kQueryBlock * head_size;
    }
    int64_t words() const { return num_heads * (keys + values + scores + outputs); }
  };

 public:
  static int64_t scratch(int64_t longest, int64_t num_heads, int64_t head_size) {
    // Fewer heads go side by side the longer a sequence is.
    int64_t most = 0;
    for (int64_t length = 1; length < longest + 2 * kTileRows; length += 2 * kTileRows) {
      most = std::max(most, Layout(std::min(length, longest), num_heads, head_size).words());
    }
    return most;
  }

  static void attend(const PackedAttention& a, float* memory) {
    [[maybe_unused]] const typename Products::Session session;
    for (int64_t s = 0; s < a.num_sequences; ++s) {
      if (a.query_starts[s + 1] > a.query_starts[s]) Heads(a, a.row_starts[s + 1] - a.row_starts[s], memory).attend(s);
    }
  }

 private:
  Heads(const PackedAttention& a, int64_t length, float* memory)
      : a_(a), length_(length), layout_(length, a.num_heads, a.head_size), padded_(padded_length(length)),
        num_steps_(a.head_size / (2 * kTileWords)) {
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
        for (int64_t plane = 0; plane < kNumPlanes; ++plane) {
          const int64_t place = row * a_.key_stride + (head + h) * a_.head_size / 2 + plane * a_.key_plane;
          pack_keys(a_.keys + place, keys_ + h * layout_.keys + plane * layout_.plane);
          pack_values(a_.values + place, values_ + h * layout_.values + plane * layout_.plane);
        }
      }
      for (int64_t query = first_query; query < last_query; query += kQueryBlock) {
        attend(head, count, query, std::min(kQueryBlock, last_query - query));
      }
    }
  }

  void attend(int64_t head, int64_t count, int64_t query, int64_t num_queries) {
    float factors[kQueryBlock];
    for (int64_t h = 0; h < count; ++h) {
      const Left queries{a_.queries + query * a_.query_stride + (head + h) * a_.head_size / 2, a_.query_stride,
                         kTileWords, a_.query_plane};
      const Right keys{keys_ + h * layout_.keys, num_steps_ * kTileSize, kTileSize, layout_.plane};
      multiply(queries, keys, num_queries, length_, a_.head_size / 2, scores_ + h * layout_.scores, padded_);
    }
    for (int64_t h = 0; h < count; ++h) {
      float *scores = scores_ + h * layout_.scores, *outputs = outputs_ + h * layout_.outputs;
      for (int64_t q = 0; q < num_queries; ++q) factors[q] = exponentiate(scores + q * padded_);
      const Left weights{scores, padded_, kNumPlanes * kTileWords, kTileWords};
      const Right values{values_ + h * layout_.values, kTileSize, a_.head_size / kTileWords * kTileSize, layout_.plane};
      multiply(weights, values, num_queries, a_.head_size, (length_ + 1) / 2, outputs, a_.head_size);
      for (int64_t q = 0; q < num_queries; ++q) {
        const Vec factor = Ops::set1(factors[q]);
        const float* from = outputs + q * a_.head_size;
        float* to = a_.output.words + (query + q) * a_.output.stride + (head + h) * a_.head_size / 2;
        for (int64_t i = 0; i < a_.head_size; i += 2 * kTileWords) {
          Format::encode(Ops::mul(Ops::load(from + i), factor), Ops::mul(Ops::load(from + i + kTileWords), factor),
                         to + i / 2, a_.output.plane_words);
        }
      }
    }
  }

  // keys [length, key_stride] words to tiles [key tiles, steps, word, key].
  void pack_keys(const float* keys, float* tiles) const {
    for (int64_t first = 0; first < length_; first += kTileRows) {
      for (int64_t step = 0; step < num_steps_; ++step, tiles += kTileSize) {
        const float* from = keys + first * a_.key_stride + step * kTileWords;
        Vec rows[kTileRows];
#pragma GCC unroll 16
        for (int r = 0; r < kTileRows; ++r) rows[r] = Ops::load_unaligned(from + r * a_.key_stride);
        Ops::transpose(rows);
#pragma GCC unroll 16
        for (int r = 0; r < kTileRows; ++r) Ops::store(tiles + r * kTileWords, rows[r]);
      }
    }
  }

  // values [length, key_stride] words to tiles [steps of 32 keys, tiles of 16 features, pair of keys, feature], zeros
  // behind the last key.
  void pack_values(const float* values, float* tiles) const {
    alignas(64) static constexpr int16_t kLow[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                     8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i low = _mm512_load_si512(kLow), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    const __m512i zero = _mm512_setzero_si512();
    const int64_t num_tiles = a_.head_size / kTileWords;
    for (int64_t key = 0; key < padded_; key += 2) {
      float* to = tiles + key / (2 * kTileRows) * num_tiles * kTileSize + key / 2 % kTileRows * kTileWords;
      for (int64_t tile = 0; tile < num_tiles; tile += 2, to += 2 * kTileSize) {
        const float* from = values + key * a_.key_stride + tile * (kTileWords / 2);
        const __m512i first = key < length_ ? _mm512_loadu_si512(from) : zero;
        const __m512i second = key + 1 < length_ ? _mm512_loadu_si512(from + a_.key_stride) : zero;
        _mm512_store_si512(to, _mm512_permutex2var_epi16(first, low, second));
        _mm512_store_si512(to + kTileSize, _mm512_permutex2var_epi16(first, high, second));
      }
    }
  }

  // out [num_rows <= kQueryBlock, num_columns], columns up to whole tiles; K is num_words.
  static void multiply(const Left& left, const Right& right, int64_t num_rows, int64_t num_columns, int64_t num_words,
                       float* out, int64_t out_stride) {
    Right tiles = right;
    for (int64_t column = 0; column < num_columns; column += 2 * kTileWords, tiles.tiles += 2 * right.next) {
      if (num_columns - column > kTileWords) {
        Products::template multiply<true>(left, tiles, num_rows, num_words, out + column, out_stride);
      } else {
        Products::template multiply<false>(left, tiles, num_rows, num_words, out + column, out_stride);
      }
    }
  }

  // scores [padded length], of which `length` count, to weights exp(scale (score - max)), in place: for every 32 keys
  // the words of the high parts and then those of the low ones, packed closely; zeros up to whole steps. Returns 1 / the
  // weights' sum.
  float exponentiate(float* scores) const {
    const Vec none = Ops::set1(-__builtin_inff());
    const auto load = [&](int64_t k) {
      if (k + kTileWords <= length_) return Ops::load(scores + k);
      const __mmask16 mask = k < length_ ? (1u << (length_ - k)) - 1 : 0;
      return _mm512_mask_load_ps(none, mask, scores + k);
    };
    Vec max = load(0);
    for (int64_t k = kTileWords; k < length_; k += kTileWords) max = Ops::max(max, load(k));
    // Scaled first, large scores would keep the rounding error of their maximum.
    const Vec factor = Ops::set1(kNumPlanes == 1 ? a_.scale * 1.44269504f : a_.scale);
    const Vec most = Ops::set1(Ops::reduce_max(max));
    const auto weigh = [&](Vec score) {
      const Vec x = Ops::mul(Ops::sub(score, most), factor);
      return kNumPlanes == 1 ? power_of_two(x) : exp<Ops>(x);
    };
    const Vec zero = Ops::set1(0.0f);
    Vec sums = zero;
    for (int64_t k = 0; k < padded_; k += 2 * kTileWords) {
      const Vec left = weigh(load(k));
      const Vec right = k + kTileWords < length_ ? weigh(load(k + kTileWords)) : zero;
      sums = Ops::add(sums, Ops::add(left, right));
      Format::encode(left, right, scores + kNumPlanes * k / 2, kTileWords);
    }
    return 1.0f / Ops::reduce_add(sums);
  }

  // 2^x for x <= 0 within 1e-4 of it: far less than bfloat16 rounds off. 0 for -inf, where p is NaN and n -inf: scalef
  // has it so.
  static Vec power_of_two(Vec x) {
    const Vec n = Ops::round(x), f = Ops::sub(x, n);
    Vec p = Ops::set1(0.05517166f);
    p = Ops::fma(p, f, Ops::set1(0.24261116f));
    p = Ops::fma(p, f, Ops::set1(0.69326099f));
    p = Ops::fma(p, f, Ops::set1(0.99992807f));
    return _mm512_scalef_ps(p, n);
  }

  const PackedAttention& a_;
  const int64_t length_;
  const Layout layout_;
  const int64_t padded_, num_steps_;
  float *keys_, *values_, *scores_, *outputs_;
};

template <class Format>
void encode_heads(const float* values, int64_t size, float* words, int64_t plane_words) {
  using Ops = typename Format::Ops;
  for (int64_t i = 0; i < size; i += 2 * kTileWords) {
    Format::encode(Ops::load_unaligned(values + i), Ops::load_unaligned(values + i + kTileWords), words + i / 2,
                   plane_words);
  }
}

template <class Products>
constexpr PackedAttentionKernels make_packed_attention() {
  using Format = typename Products::Format;
  return {Format::kNumPlanes, encode_heads<Format>, Heads<Products>::attend, Heads<Products>::scratch};
}

}  // namespace
}  // namespace mlmfast
