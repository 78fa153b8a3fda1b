// The loops of a product and what happens to a tile of results while it is in L1, written once over a Tiles
// struct: how a format multiplies a block of rows with a panel.
#pragma once

#include <algorithm>

#include "cpu/activation.h"
#include "cpu/matrix_gemm.h"
#include "cpu/matrix_kernels.h"

namespace mlmfast {
namespace {

// A chunk of rows and two panels stay in L2 while the weights pass.
constexpr int64_t kChunkWords = 320 * 1024;
constexpr int64_t kLineWords = 16;  // of a cache line

template <class F>
struct VectorTiles {
  using Format = F;
  static constexpr int kBlockRows = Format::Ops::kBlockRows;
  struct Session {};

  template <class Advance>
  static void multiply(const MatrixProduct& p, const float* x, int64_t num_rows, const float* panel,
                       const float* bias, float* tile, Advance&&) {
    mlmfast::multiply<Format>(x, p.x_stride, num_rows, panel, bias, p.num_words, tile,
                              2 * Format::Ops::kWidth);
  }
};

// An epilogue takes one row of a panel's columns, 64-byte aligned, with the row's and the panel's index; the
// second weight's row, where there is one, stands second_row further.

constexpr int64_t kRowsAhead = 8;  // whose lines are fetched before they are written

template <class Ops, bool kAdd>
struct StoreEpilogue {
  static constexpr int kNumWeights = 1;
  static constexpr int kColumns = 2 * Ops::kWidth;
  float* out;
  int64_t stride, num_columns;

  void operator()(const float* results, int64_t, int64_t row, int64_t panel) const {
    float* to = out + row * stride + panel * kColumns;
    const int64_t columns = std::min<int64_t>(kColumns, num_columns - panel * kColumns);
    for (int c = 0; c < kColumns; c += kLineWords) __builtin_prefetch(to + kRowsAhead * stride + c, 1);
    if (columns == kColumns) {
      for (int c = 0; c < kColumns; c += Ops::kWidth) {
        const auto y = Ops::load(results + c);
        Ops::store_unaligned(to + c, kAdd ? Ops::add(Ops::load_unaligned(to + c), y) : y);
      }
    } else {
      for (int64_t c = 0; c < columns; ++c) to[c] = kAdd ? to[c] + results[c] : results[c];
    }
  }
};

template <class Format, Activation kActivation, bool kGated>
struct ActivateEpilogue {
  using Ops = typename Format::Ops;
  static constexpr int kNumWeights = kGated ? 2 : 1;
  OperandView out;

  void operator()(const float* results, int64_t second_row, int64_t row, int64_t panel) const {
    constexpr int64_t kPanelWords = 2 * Ops::kWidth / Format::kValuesPerWord;
    float* to = out.words + row * out.stride + panel * kPanelWords;
    for (int plane = 0; plane < Format::kNumPlanes; ++plane) {
      __builtin_prefetch(to + kRowsAhead * out.stride + plane * out.plane_words, 1);
    }
    typename Ops::Vec y[2];
    for (int i = 0; i < 2; ++i) {
      const float* part = results + i * Ops::kWidth;
      y[i] = activate<Ops, kActivation, Format::kFineActivation>(Ops::load(part));
      if constexpr (kGated) y[i] = Ops::mul(y[i], Ops::load(part + second_row));
    }
    Format::encode(y[0], y[1], to, out.plane_words);
  }
};

// What is done in pieces between the products of a tile, while the matrix unit works: the epilogue of the
// tile before, and the prefetch of a share of the next panel into L2.
template <class Tiles, class Epilogue>
class Background {
 public:
  static constexpr int kColumns = 2 * Tiles::Format::Ops::kWidth;
  static constexpr int kTileSize = Tiles::kBlockRows * kColumns;

  explicit Background(const Epilogue& epilogue) : epilogue_(epilogue) {}

  void set_tile(const float* tile, int64_t first_row, int64_t num_rows, int64_t panel) {
    tile_ = tile;
    row_ = first_row;
    end_row_ = first_row + num_rows;
    panel_ = panel;
  }

  void set_prefetch(const float* begin, int64_t num_words) {
    prefetch_ = begin;
    prefetch_end_ = begin + num_words;
    prefetch_step_ = num_words / Tiles::kBlockRows + kLineWords;
  }

  void advance(int64_t num_rows) {
    for (const int64_t end = std::min(end_row_, row_ + num_rows); row_ < end; ++row_, tile_ += kColumns) {
      epilogue_(tile_, kTileSize, row_, panel_);
    }
    const float* end = std::min(prefetch_end_, prefetch_ + num_rows * prefetch_step_);
    for (; prefetch_ < end; prefetch_ += kLineWords) __builtin_prefetch(prefetch_, 0, 2);
  }

  void finish() { advance(Tiles::kBlockRows); }

 private:
  const Epilogue& epilogue_;
  const float* tile_ = nullptr;
  int64_t row_ = 0, end_row_ = 0, panel_ = 0;
  const float *prefetch_ = nullptr, *prefetch_end_ = nullptr;
  int64_t prefetch_step_ = 0;
};

template <class Tiles, class Epilogue>
void run(const MatrixProduct& p, const Epilogue& epilogue) {
  using Work = Background<Tiles, Epilogue>;
  constexpr int kNumWeights = Epilogue::kNumWeights;
  alignas(64) float tiles[2][kNumWeights * Work::kTileSize];
  int current = 0;
  [[maybe_unused]] const typename Tiles::Session session;
  Work background(epilogue);
  const int64_t panel_size = Tiles::Format::kNumPlanes * p.num_words * Work::kColumns;
  const int64_t num_panels = (p.num_columns + Work::kColumns - 1) / Work::kColumns;
  const int64_t max_rows =
      std::max<int64_t>(1, kChunkWords / p.x_stride / Tiles::kBlockRows) * Tiles::kBlockRows;
  for (int64_t chunk = 0; chunk < p.num_rows; chunk += max_rows) {
    const int64_t chunk_rows = std::min(max_rows, p.num_rows - chunk);
    const int64_t num_blocks = (chunk_rows + Tiles::kBlockRows - 1) / Tiles::kBlockRows;
    const int64_t share = panel_size / num_blocks;
    for (int64_t panel = 0; panel < num_panels; ++panel) {
      for (int64_t block = 0; block < num_blocks; ++block) {
        const int64_t row = chunk + block * Tiles::kBlockRows;
        const int64_t num_rows = std::min<int64_t>(Tiles::kBlockRows, chunk + chunk_rows - row);
        float* tile = tiles[current];
        for (int w = 0; w < kNumWeights; ++w) {
          const float* weights = p.panels[w] + panel * panel_size;
          if (panel + 1 < num_panels) background.set_prefetch(weights + panel_size + block * share, share);
          Tiles::multiply(p, p.x + row * p.x_stride, num_rows, weights, p.biases[w] + panel * Work::kColumns,
                          tile + w * Work::kTileSize,
                          [&background](int64_t rows) { background.advance(rows); });
        }
        background.finish();
        background.set_tile(tile, row, num_rows, panel);
        current = 1 - current;
      }
    }
  }
  background.finish();
}

template <class Format>
void encode(const float* values, int64_t size, float* words, int64_t plane_words) {
  using Ops = typename Format::Ops;
  constexpr int kColumns = 2 * Ops::kWidth;
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

template <class Tiles, bool kAdd>
void store(const MatrixProduct& product, float* out, int64_t stride) {
  run<Tiles>(product, StoreEpilogue<typename Tiles::Format::Ops, kAdd>{out, stride, product.num_columns});
}

template <class Tiles, Activation kActivation, bool kGated>
void activate(const MatrixProduct& product, const OperandView& out) {
  run<Tiles>(product, ActivateEpilogue<typename Tiles::Format, kActivation, kGated>{out});
}

template <class Tiles>
constexpr MatrixKernels make_matrix_kernels(Precision precision, Isa isa) {
  using Format = typename Tiles::Format;
  return {precision,
          isa,
          Tiles::kBlockRows,
          2 * Format::Ops::kWidth,
          Format::kValuesPerWord,
          Format::kNumPlanes,
          encode<Format>,
          store<Tiles, false>,
          store<Tiles, true>,
          {activate<Tiles, Activation::none, false>, activate<Tiles, Activation::gelu, false>,
           activate<Tiles, Activation::gelu_tanh, false>, activate<Tiles, Activation::relu, false>,
           activate<Tiles, Activation::silu, false>},
          {activate<Tiles, Activation::none, true>, activate<Tiles, Activation::gelu, true>,
           activate<Tiles, Activation::gelu_tanh, true>, activate<Tiles, Activation::relu, true>,
           activate<Tiles, Activation::silu, true>}};
}

}  // namespace
}  // namespace mlmfast
