// The loops of a product and what happens to a tile of results while it is in L1, written once over a Tiles
// struct: how a format multiplies a block of rows with a panel.
#pragma once

#include <algorithm>
#include <bit>

#include "cpu/activation.h"
#include "cpu/logit_gradients.h"
#include "cpu/matrix_gemm.h"
#include "cpu/matrix_kernels.h"

namespace mlmfast {
namespace {

// Of rows that stay in L2, beside two panels, while the weights pass, or of weights while the rows do.
constexpr int64_t kChunkWords = 320 * 1024;
constexpr int64_t kActivatedWords = 128 * 1024;
constexpr int64_t kLineWords = 16;  // of a cache line

template <class F>
struct VectorTiles {
  using Format = F;
  static constexpr int kBlockRows = Format::Ops::kBlockRows;
  struct Session {};

  // How often a product lets others advance.
  static int64_t num_pauses(const MatrixProduct&) { return 1; }

  template <class Advance>
  static void multiply(const MatrixProduct& p, const float* x, int64_t num_rows, const float* panel,
                       const float* start, float* tile, Advance&& advance) {
    advance(kBlockRows);
    mlmfast::multiply<Format>(x, p.x_stride, num_rows, panel, start, p.num_words, tile,
                              2 * Format::Ops::kWidth);
  }
};

// A row of a panel's results, of the product's first or second weight.
template <class Format>
class Results {
 public:
  using Ops = typename Format::Ops;
  using Vec = typename Ops::Vec;
  static constexpr int kColumns = 2 * Ops::kWidth;

  // sums: 64-byte aligned; those of the second weight stand second_sums further.
  Results(const MatrixProduct& product, int64_t row, int64_t panel, const float* sums, int64_t second_sums)
      : product_(product), column_(panel * kColumns), sums_(sums), second_sums_(second_sums) {
    if constexpr (Format::kIsScaled) row_scale_ = Ops::set1(product.x[row * product.x_stride + product.num_words]);
  }

  Vec load(int weight, int c) const {
    const Vec sums = Ops::load(sums_ + weight * second_sums_ + c);
    if constexpr (Format::kIsScaled) {
      const Vec scale = Ops::mul(row_scale_, Ops::load(product_.scales[weight] + column_ + c));
      return Ops::fma(Ops::from_int32(sums), scale, Ops::load(product_.biases[weight] + column_ + c));
    } else {
      return sums;
    }
  }

 private:
  const MatrixProduct& product_;
  int64_t column_;
  const float* sums_;
  int64_t second_sums_;
  Vec row_scale_;
};

// An epilogue takes the results of a row and a panel.

constexpr int64_t kRowsAhead = 8;  // whose lines are fetched before they are written

template <class Format, bool kAdd>
struct StoreEpilogue {
  using Ops = typename Format::Ops;
  static constexpr int kNumWeights = 1;
  static constexpr int kColumns = 2 * Ops::kWidth;
  float* out;
  int64_t stride, num_columns;

  void operator()(const Results<Format>& results, int64_t row, int64_t panel) const {
    float* to = out + row * stride + panel * kColumns;
    const int64_t columns = std::min<int64_t>(kColumns, num_columns - panel * kColumns);
    for (int c = 0; c < kColumns; c += kLineWords) __builtin_prefetch(to + kRowsAhead * stride + c, 1);
    if (columns == kColumns) {
      for (int c = 0; c < kColumns; c += Ops::kWidth) {
        const auto y = results.load(0, c);
        Ops::store_unaligned(to + c, kAdd ? Ops::add(Ops::load_unaligned(to + c), y) : y);
      }
    } else {
      alignas(64) float y[kColumns];
      for (int c = 0; c < kColumns; c += Ops::kWidth) Ops::store(y + c, results.load(0, c));
      for (int64_t c = 0; c < columns; ++c) to[c] = kAdd ? to[c] + y[c] : y[c];
    }
  }
};

template <class Format, Activation kActivation, bool kGated>
struct ActivateEpilogue {
  using Ops = typename Format::Ops;
  using Activated = typename Format::Activated;
  static constexpr int kNumWeights = kGated ? 2 : 1;
  OperandView out;

  void operator()(const Results<Format>& results, int64_t row, int64_t panel) const {
    constexpr int64_t kPanelWords = 2 * Ops::kWidth / Activated::kValuesPerWord;
    float* to = out.words + row * out.stride + panel * kPanelWords;
    for (int plane = 0; plane < Activated::kNumPlanes; ++plane) {
      __builtin_prefetch(to + kRowsAhead * out.stride + plane * out.plane_words, 1);
    }
    typename Ops::Vec y[2];
    for (int i = 0; i < 2; ++i) {
      y[i] = activate<Ops, kActivation, Format::kNormalCdf>(results.load(0, i * Ops::kWidth));
      if constexpr (kGated) y[i] = Ops::mul(y[i], results.load(1, i * Ops::kWidth));
    }
    Activated::encode(y[0], y[1], to, out.plane_words);
  }
};

// What is done in pieces between the products of a tile, while the matrix unit works: the epilogue of the
// tile before, and the prefetch of a share of the next panel into L2.
template <class Tiles, class Epilogue>
class Background {
 public:
  static constexpr int kColumns = 2 * Tiles::Format::Ops::kWidth;
  static constexpr int kTileSize = Tiles::kBlockRows * kColumns;

  Background(const MatrixProduct& product, const Epilogue& epilogue) : product_(product), epilogue_(epilogue) {}

  void set_tile(const float* tile, int64_t first_row, int64_t num_rows, int64_t panel) {
    tile_ = tile;
    row_ = first_row;
    end_row_ = first_row + num_rows;
    panel_ = panel;
  }

  // num_words in a piece.
  void set_prefetch(const float* begin, int64_t num_words) {
    prefetch_ = begin;
    prefetch_words_ = num_words;
  }

  void advance(int64_t num_rows) {
    finish(num_rows);
    for (int64_t word = 0; word < prefetch_words_; word += kLineWords) __builtin_prefetch(prefetch_ + word, 0, 2);
    prefetch_ += prefetch_words_;
  }

  void finish(int64_t num_rows = Tiles::kBlockRows) {
    for (; num_rows > 0 && row_ < end_row_; --num_rows, ++row_, tile_ += kColumns) {
      epilogue_(Results<typename Tiles::Format>(product_, row_, panel_, tile_, kTileSize), row_, panel_);
    }
  }

 private:
  const MatrixProduct& product_;
  const Epilogue& epilogue_;
  const float* tile_ = nullptr;
  int64_t row_ = 0, end_row_ = 0, panel_ = 0;
  const float* prefetch_ = nullptr;
  int64_t prefetch_words_ = 0;
};

template <class Tiles, class Epilogue>
void run(const MatrixProduct& p, const Epilogue& epilogue) {
  using Work = Background<Tiles, Epilogue>;
  constexpr int kNumWeights = Epilogue::kNumWeights;
  alignas(64) float tiles[2][kNumWeights * Work::kTileSize];
  int current = 0;
  [[maybe_unused]] const typename Tiles::Session session;
  Work background(p, epilogue);
  const int64_t panel_size = Tiles::Format::kNumPlanes * p.num_words * Work::kColumns;
  const int64_t num_pauses = Tiles::num_pauses(p);
  const int64_t num_panels = (p.num_columns + Work::kColumns - 1) / Work::kColumns;
  const int64_t cached_rows = std::max<int64_t>(1, kChunkWords / p.x_stride / Tiles::kBlockRows) * Tiles::kBlockRows;
  // Either a chunk of rows stays in L2 and the weights pass, or, where all weights fit and the rows do not, the reverse.
  const bool weights_stay = p.num_rows > cached_rows && num_panels * panel_size * kNumWeights <= kChunkWords;
  const int64_t max_rows = weights_stay ? p.num_rows : cached_rows;
  for (int64_t chunk = 0; chunk < p.num_rows; chunk += max_rows) {
    const int64_t chunk_rows = std::min(max_rows, p.num_rows - chunk);
    const int64_t num_blocks = (chunk_rows + Tiles::kBlockRows - 1) / Tiles::kBlockRows;
    const int64_t share = weights_stay ? panel_size : (panel_size + num_blocks - 1) / num_blocks;
    const int64_t piece = (share + num_pauses - 1) / num_pauses;
    for (int64_t i = 0; i < num_blocks * num_panels; ++i) {
      const int64_t panel = weights_stay ? i % num_panels : i / num_blocks;
      const int64_t block = weights_stay ? i / num_panels : i % num_blocks;
      const int64_t row = chunk + block * Tiles::kBlockRows;
      const int64_t num_rows = std::min<int64_t>(Tiles::kBlockRows, chunk + chunk_rows - row);
      const bool prefetches = panel + 1 < num_panels && !(weights_stay && block > 0);
      float* tile = tiles[current];
      for (int w = 0; w < kNumWeights; ++w) {
        const float* weights = p.panels[w] + panel * panel_size;
        background.set_prefetch(weights + panel_size + (weights_stay ? 0 : block * share), prefetches ? piece : 0);
        Tiles::multiply(p, p.x + row * p.x_stride, num_rows, weights, p.starts[w] + panel * Work::kColumns,
                        tile + w * Work::kTileSize, [&background](int64_t rows) { background.advance(rows); });
      }
      background.finish();
      background.set_tile(tile, row, num_rows, panel);
      current = 1 - current;
    }
  }
  background.finish();
}

// `size` values, whole vectors of which load(index) gives, to int8 words, zeros up to plane_words, and their scale.
// bound: the largest magnitude among them; the scale is NaN where it is not finite.
template <class Ops, class Load>
void quantise(int64_t size, const Load& load, float bound, float* words, int64_t plane_words) {
  constexpr float kSteps = 127.0f, kSmallest = 1e-30f;  // below it all is 0
  const auto steps = Ops::set1(bound > kSmallest ? kSteps / bound : 0.0f);
  int8_t* bytes = reinterpret_cast<int8_t*>(words);
  for (int64_t i = 0; i < size; i += Ops::kWidth) Ops::store_int8(bytes + i, Ops::mul(load(i), steps));
  const int64_t whole = (size + Ops::kWidth - 1) / Ops::kWidth * Ops::kWidth;
  for (int64_t i = whole; i < plane_words * 4; i += Ops::kWidth) Ops::store_int8(bytes + i, Ops::set1(0.0f));
  words[plane_words] = (bound > kSmallest ? bound / kSteps : 0.0f) + bound * 0.0f;
}

// Magnitudes are compared by their bits, in which NaN is the largest.

template <class Ops>
void encode_int8(const float* values, int64_t size, float* words, int64_t plane_words) {
  const int64_t whole = size / Ops::kWidth * Ops::kWidth;
  alignas(64) float last[Ops::kWidth] = {};
  std::copy(values + whole, values + size, last);
  const auto load = [&](int64_t i) { return i < whole ? Ops::load_unaligned(values + i) : Ops::load(last); };
  auto largest = Ops::set1(0.0f);
  for (int64_t i = 0; i < size; i += Ops::kWidth) largest = Ops::larger_magnitude(load(i), largest);
  alignas(64) uint32_t bits[Ops::kWidth];
  Ops::store(reinterpret_cast<float*>(bits), largest);
  const uint32_t bound = *std::max_element(bits, bits + Ops::kWidth);
  quantise<Ops>(size, load, std::bit_cast<float>(bound), words, plane_words);
}

// Rows of bfloat16 to int8, in place: what is written stays behind what is read.
template <class Ops>
void quantise_rows(const OperandView& out, int64_t num_rows, int64_t num_columns) {
  for (int64_t r = 0; r < num_rows; ++r) {
    float* words = out.words + r * out.stride;
    auto largest = Ops::set1(0.0f);
    for (int64_t i = 0; i < num_columns; i += 2 * Ops::kWidth) {
      largest = Ops::larger_bf16_magnitude(Ops::load(words + i / 2), largest);
    }
    alignas(64) uint16_t bits[2 * Ops::kWidth];
    Ops::store(reinterpret_cast<float*>(bits), largest);
    const uint32_t bound = *std::max_element(bits, bits + 2 * Ops::kWidth);
    const uint16_t* values = reinterpret_cast<const uint16_t*>(words);
    quantise<Ops>(
        num_columns, [&](int64_t i) { return Ops::load_bf16(values + i); }, std::bit_cast<float>(bound << 16), words,
        out.plane_words);
  }
}

template <class Format>
void encode(const float* values, int64_t size, float* words, int64_t plane_words) {
  using Ops = typename Format::Ops;
  constexpr int kColumns = 2 * Ops::kWidth;
  if constexpr (Format::kIsScaled) {
    encode_int8<Ops>(values, size, words, plane_words);
  } else {
    for (int64_t begin = 0; begin < size; begin += kColumns, words += kColumns / Format::kValuesPerWord) {
      const float* from = values + begin;
      alignas(64) float padded[kColumns] = {};
      if (size - begin < kColumns) {
        std::copy(from, values + size, padded);
        from = padded;
      }
      Format::encode(Ops::load_unaligned(from), Ops::load_unaligned(from + Ops::kWidth), words, plane_words);
    }
  }
}

template <class Tiles, bool kAdd>
void store(const MatrixProduct& product, float* out, int64_t stride) {
  run<Tiles>(product, StoreEpilogue<typename Tiles::Format, kAdd>{out, stride, product.num_columns});
}

template <class Tiles, Activation kActivation, bool kGated>
void activate(const MatrixProduct& product, const OperandView& out) {
  using Format = typename Tiles::Format;
  using Epilogue = ActivateEpilogue<Format, kActivation, kGated>;
  if constexpr (Format::kIsScaled) {
    // As many rows as stay in L2 until they are quantised.
    const int64_t max_rows = std::max<int64_t>(1, kActivatedWords / out.stride / Tiles::kBlockRows) * Tiles::kBlockRows;
    for (int64_t first = 0; first < product.num_rows; first += max_rows) {
      MatrixProduct part = product;
      part.x += first * part.x_stride;
      part.num_rows = std::min(max_rows, product.num_rows - first);
      const OperandView rows{out.words + first * out.stride, out.stride, out.plane_words};
      run<Tiles>(part, Epilogue{rows});
      quantise_rows<typename Format::Ops>(rows, part.num_rows, product.num_columns);
    }
  } else {
    run<Tiles>(product, Epilogue{out});
  }
}

template <class Tiles>
void store_bf16(const MatrixProduct& product, const OperandView& out) {
  run<Tiles>(product, ActivateEpilogue<typename Tiles::Format, Activation::none, false>{out});
}

// The kernels of formats of bfloat16, as long as rows are not yet whole.
template <class Tiles>
constexpr decltype(MatrixKernels::store_bf16) store_bf16_of() {
  if constexpr (Tiles::Format::Activated::kValuesPerWord == 2) {
    return store_bf16<Tiles>;
  } else {
    return nullptr;
  }
}

template <class Format>
constexpr decltype(MatrixKernels::quantise_rows) quantise_rows_of() {
  if constexpr (Format::kIsScaled) {
    return quantise_rows<typename Format::Ops>;
  } else {
    return nullptr;
  }
}

template <class Ops>
constexpr int64_t left_offset() {
  if constexpr (requires { Ops::kLeftOffset; }) {
    return Ops::kLeftOffset;
  } else {
    return 0;
  }
}

template <class Tiles>
constexpr MatrixKernels make_matrix_kernels(Precision precision, Isa isa) {
  using Format = typename Tiles::Format;
  return {precision,
          isa,
          Tiles::kBlockRows,
          2 * Format::Ops::kWidth,
          std::max<int64_t>(2 * Format::Ops::kWidth, Format::kIsScaled ? kLineWords * Format::kValuesPerWord : 1),
          Format::kValuesPerWord,
          Format::Activated::kValuesPerWord,
          Format::kNumPlanes,
          Format::kIsScaled,
          left_offset<typename Format::Ops>(),
          encode<Format>,
          store<Tiles, false>,
          store<Tiles, true>,
          store_bf16_of<Tiles>(),
          quantise_rows_of<Format>(),
          {activate<Tiles, Activation::none, false>, activate<Tiles, Activation::gelu, false>,
           activate<Tiles, Activation::gelu_tanh, false>, activate<Tiles, Activation::relu, false>,
           activate<Tiles, Activation::silu, false>},
          {activate<Tiles, Activation::none, true>, activate<Tiles, Activation::gelu, true>,
           activate<Tiles, Activation::gelu_tanh, true>, activate<Tiles, Activation::relu, true>,
           activate<Tiles, Activation::silu, true>},
          logit_gradients_of<Format>(),
          transpose<typename Format::Ops>};
}

}  // namespace
}  // namespace mlmfast
