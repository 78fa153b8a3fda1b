#include "mlmfast/head.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cpu/head_kernels.h"
#include "cpu/matrix_kernels.h"
#include "mlmfast/weights.h"
#include "top_k.h"

namespace mlmfast {
namespace {

constexpr int64_t kCacheWords = 128 * 1024;  // 512 KB: a row chunk and a tile's weights fit in L2 together
constexpr int64_t kPassingWords = 1024 * 1024;  // of rows, where weights are packed by tile: 4 MB
constexpr int64_t kMaxTileColumns = 512;
constexpr int64_t kBlockRows = 64;            // whole blocks of every kernel; a block's logits stay in L2
constexpr int64_t kFindSlack = 16;            // floats find_greater may read past a tile
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Of a row of `size` values as a factor.
int64_t row_words(const MatrixKernels& kernels, int64_t size) {
  return ceil_div(size, kernels.row_unit) * kernels.row_unit / kernels.values_per_word * kernels.num_planes;
}

double log_of_sum(const LogitSums& s) { return std::log1p(double{s.num_max} - 1 + s.rest); }

struct Row {
  int64_t index;                      // among the inputs
  int64_t target_begin, target_end;
  int64_t next_target;                // in the order of ids, the first whose column has not passed
  TopK top;
  LogitSums all, subset;
  TailSums tail;
};

// Scratch of one thread; it grows to the largest call and stays.
struct Workspace {
  std::optional<Operand> hidden;           // [rows of the chunk, H]
  std::optional<Operand> hidden_row;       // [1, H]
  std::optional<Linear> decoder;            // a tile's, where the weight is packed by tile
  const MatrixKernels* products = nullptr;  // those of all three
  AlignedBuffer floats;                     // [H]
  AlignedBuffer tile;                       // [rows of the block, tile columns]
  AlignedBuffer masked;                     // [tile columns]
  AlignedBuffer panel;                      // [one unit of columns]
  std::vector<int64_t> row_indices;   // rows that have targets
  std::vector<int64_t> target_order;  // [t] each row's targets by id
  std::vector<float> target_logits;   // [t]
  std::vector<int64_t> num_greater;   // [t]
  std::vector<Row> rows;
  std::vector<float> top_logits;  // [rows of the chunk, top_k]
  std::vector<int32_t> top_ids;   // [rows of the chunk, top_k]
};

}  // namespace

// One call of score.
class Head::Pass {
 public:
  Pass(const Head& head, const HeadInputs& inputs, const HeadOutputs& outputs, Workspace& workspace)
      : head_(head), kernels_(head.kernels_), inputs_(inputs), outputs_(outputs), workspace_(workspace) {}

  void run() {
    order_targets();
    if (workspace_.products != &head_.products_) {
      workspace_.products = &head_.products_;
      workspace_.hidden.emplace(head_.products_);
      workspace_.hidden_row.emplace(head_.products_);
      workspace_.decoder.emplace(head_.products_);
    }
    const int64_t num_rows = static_cast<int64_t>(workspace_.row_indices.size());
    const int64_t words = head_.packs_by_tile_ ? kPassingWords : kCacheWords;
    const int64_t max_rows =
        std::max(kBlockRows, words / row_words(head_.products_, head_.hidden_size()) / kBlockRows * kBlockRows);
    const int64_t num_chunks = ceil_div(num_rows, max_rows);
    for (int64_t c = 0; c < num_chunks; ++c) {
      start_rows(c * num_rows / num_chunks, (c + 1) * num_rows / num_chunks);
      score_rows();
      for (const Row& row : workspace_.rows) finish(row);
    }
  }

 private:
  void order_targets() {
    const int64_t num_targets = inputs_.target_offsets[inputs_.num_rows];
    workspace_.target_logits.resize(num_targets);
    workspace_.num_greater.assign(num_targets, 0);
    std::vector<int64_t>& order = workspace_.target_order;
    order.resize(num_targets);
    std::iota(order.begin(), order.end(), int64_t{0});
    workspace_.row_indices.clear();
    for (int64_t r = 0; r < inputs_.num_rows; ++r) {
      const int64_t begin = inputs_.target_offsets[r], end = inputs_.target_offsets[r + 1];
      if (begin == end) continue;
      workspace_.row_indices.push_back(r);
      std::sort(order.begin() + begin, order.begin() + end,
                [this](int64_t a, int64_t b) { return inputs_.target_ids[a] < inputs_.target_ids[b]; });
    }
  }

  // Fills the workspace with the rows [begin, end) of row_indices.
  void start_rows(int64_t begin, int64_t end) {
    Workspace& w = workspace_;
    const int64_t num_rows = end - begin, top_k = outputs_.top_k;
    w.top_logits.resize(num_rows * top_k);
    w.top_ids.resize(num_rows * top_k);
    w.rows.clear();
    for (int64_t r = 0; r < num_rows; ++r) {
      const int64_t index = w.row_indices[begin + r];
      const int64_t target_begin = inputs_.target_offsets[index];
      w.rows.push_back({index, target_begin, inputs_.target_offsets[index + 1], target_begin,
                        TopK(w.top_logits.data() + r * top_k, w.top_ids.data() + r * top_k, top_k), {}, {}, {}});
      if (outputs_.rank != nullptr) compute_target_logits(w.rows.back());
    }
    pack_hidden();
  }

  const float* hidden_row(const Row& row) {
    const int64_t size = head_.hidden_size();
    if (inputs_.hidden_bf16 == nullptr) return inputs_.hidden + row.index * size;
    float* floats = workspace_.floats.reserve(size);
    const uint16_t* words = inputs_.hidden_bf16 + row.index * size;
    std::transform(words, words + size, floats, bf16_to_f32);
    return floats;
  }

  // Classes first .. first + columns of the weight, packed.
  struct Classes {
    const Linear& decoder;
    int64_t first_column;
  };
  Classes packed(int64_t first, int64_t columns) {
    if (!head_.packs_by_tile_) return {head_.decoder_, first};
    const WeightView& weight = head_.weight_;
    const float* bias = head_.bias_ == nullptr ? nullptr : head_.bias_ + first;
    Linear& decoder = *workspace_.decoder;
    if (weight.dtype == DType::bf16 && head_.products_.precision == Precision::bfloat16) {
      const uint16_t* words = reinterpret_cast<const uint16_t*>(weight.data);
      decoder.assign_bf16(words + first * weight.columns, bias, columns, weight.columns);
    } else {
      const auto read = [&](int64_t row, int64_t count, float* rows) {
        weight.read((first + row) * weight.columns, count * weight.columns, rows);
      };
      decoder.assign(read, bias, columns, weight.columns);
    }
    return {decoder, 0};
  }

  // Ranks compare against the target's logit, so it must be known before the tiles pass; the same
  // kernel makes it the same bits as in the tile.
  void compute_target_logits(const Row& row) {
    const int64_t unit = head_.products_.panel_columns;
    float* panel = workspace_.panel.reserve(unit);
    Operand& operand = *workspace_.hidden_row;
    operand.resize(1, head_.hidden_size());
    operand.write(0, hidden_row(row), head_.hidden_size(), 1);
    for (int64_t t = row.target_begin; t < row.target_end; ++t) {
      const int64_t id = inputs_.target_ids[t], first = id - id % unit;
      const int64_t columns = std::min(unit, head_.vocab_size() - first);
      const Classes classes = packed(first, columns);
      classes.decoder.store_part(operand, 0, 1, classes.first_column, columns, panel, unit);
      workspace_.target_logits[t] = panel[id - first];
    }
  }

  void pack_hidden() {
    const int64_t num_rows = static_cast<int64_t>(workspace_.rows.size());
    workspace_.hidden->resize(num_rows, head_.hidden_size());
    for (int64_t r = 0; r < num_rows; ++r) {
      workspace_.hidden->write(r, hidden_row(workspace_.rows[r]), head_.hidden_size(), 1);
    }
  }

  void score_rows() {
    const int64_t stride = head_.tile_columns_, num_rows = static_cast<int64_t>(workspace_.rows.size());
    float* tile = workspace_.tile.reserve(kBlockRows * stride + kFindSlack);
    workspace_.masked.reserve(stride);
    for (int64_t first = 0; first < head_.vocab_size(); first += stride) {
      const int64_t columns = std::min(stride, head_.vocab_size() - first);
      const int64_t whole = ceil_div(columns, kHeadColumns) * kHeadColumns;
      const Classes classes = packed(first, columns);
      for (int64_t begin = 0; begin < num_rows; begin += kBlockRows) {
        const int64_t block_rows = std::min(kBlockRows, num_rows - begin);
        classes.decoder.store_part(*workspace_.hidden, begin, block_rows, classes.first_column, columns, tile,
                                   stride);
        for (int64_t r = 0; r < block_rows; ++r) {
          float* logits = tile + r * stride;
          std::fill(logits + columns, logits + whole, kMinusInfinity);
          Row& row = workspace_.rows[begin + r];
          if (outputs_.sums != nullptr) row.all.total += kernels_.sum(logits, columns);
          if (outputs_.tails != nullptr) {
            const TailSums tail = kernels_.sum_below(logits, columns, outputs_.thresholds[row.index]);
            row.tail.count += tail.count;
            row.tail.sum += tail.sum;
          }
          consume(row, logits, first, whole);
        }
      }
    }
  }

  // Takes a row's logits of the classes first .. first + columns, padding included.
  void consume(Row& row, const float* logits, int64_t first, int64_t columns) {
    merge(row.all, kernels_.sum_exp[outputs_.entropy != nullptr][outputs_.sums != nullptr](logits, columns));
    if (outputs_.subset_log_prob != nullptr) {
      float* masked = workspace_.masked.reserve(columns);
      kernels_.add(logits, head_.subset_penalty_.data() + first, columns, masked);
      merge(row.subset, kernels_.sum_exp[0][0](masked, columns));
    }
    if (outputs_.logits != nullptr) {
      const int64_t stored = std::min(columns, head_.vocab_size() - first);
      for (int64_t t = row.target_begin; t < row.target_end; ++t) {
        std::copy_n(logits, stored, outputs_.logits + t * head_.vocab_size() + first);
      }
    }
    for (; row.next_target < row.target_end; ++row.next_target) {
      const int64_t target = workspace_.target_order[row.next_target];
      const int64_t column = inputs_.target_ids[target] - first;
      if (column >= columns) break;
      workspace_.target_logits[target] = logits[column];
    }
    if (outputs_.rank != nullptr) {
      for (int64_t t = row.target_begin; t < row.target_end; ++t) {
        workspace_.num_greater[t] += kernels_.count_greater(logits, columns, workspace_.target_logits[t]);
      }
    }
    row.top.consider(kernels_, logits, columns, first);
  }

  void finish(const Row& row) {
    if (outputs_.sums != nullptr) outputs_.sums[row.index] = row.all;
    if (outputs_.tails != nullptr) outputs_.tails[row.index] = row.tail;
    const double max = row.all.max, log_sum = log_of_sum(row.all);
    for (int64_t t = row.target_begin; t < row.target_end; ++t) {
      const float logit = workspace_.target_logits[t];
      const bool is_nan = std::isnan((logit - max) - log_sum);
      outputs_.log_prob[t] = is_nan ? kNaN : static_cast<float>((logit - max) - log_sum);
      if (outputs_.logit != nullptr) outputs_.logit[t] = logit;
      if (outputs_.rank != nullptr) {
        outputs_.rank[t] = is_nan ? -1 : static_cast<int32_t>(workspace_.num_greater[t]);
      }
      if (outputs_.entropy != nullptr) {
        const double entropy = log_sum - row.all.rest_weighted / (double{row.all.num_max} + row.all.rest);
        outputs_.entropy[t] = entropy < 0 ? 0.0f : static_cast<float>(entropy);
      }
      if (outputs_.subset_log_prob != nullptr) {
        const double log_prob = (row.subset.max - max) + log_of_sum(row.subset) - log_sum;
        outputs_.subset_log_prob[t] = log_prob > 0 ? 0.0f : static_cast<float>(log_prob);
      }
      for (int64_t k = 0; k < outputs_.top_k; ++k) {
        outputs_.top_ids[t * outputs_.top_k + k] = is_nan ? -1 : row.top.id(k);
        outputs_.top_log_probs[t * outputs_.top_k + k] =
            is_nan ? kNaN : static_cast<float>((row.top.logit(k) - max) - log_sum);
      }
    }
  }

  const Head& head_;
  const HeadKernels& kernels_;
  const HeadInputs& inputs_;
  const HeadOutputs& outputs_;
  Workspace& workspace_;
};

Head::Head(int64_t vocab_size, int64_t hidden_size, Isa isa, const MatrixKernels& products, Linear decoder)
    : vocab_size_(vocab_size),
      hidden_size_(hidden_size),
      isa_(isa),
      kernels_(head_kernels(isa)),
      products_(products),
      decoder_(std::move(decoder)) {
  const int64_t unit = std::max(kHeadColumns, products_.panel_columns);
  const int64_t columns = kCacheWords / row_words(products_, hidden_size);
  tile_columns_ = unit * std::clamp(columns / unit, int64_t{1}, kMaxTileColumns / unit);
}

Head::Head(const WeightView& weight, const float* bias, Precision precision, Isa isa)
    : Head(weight.rows, weight.columns, isa, matrix_kernels(precision, isa), Linear(matrix_kernels(precision, isa))) {
  packs_by_tile_ = true;
  weight_ = weight;
  bias_ = bias;
}

Head::Head(const ReadRows& weight, const float* bias, const uint8_t* subset, int64_t vocab_size,
           int64_t hidden_size, Precision precision, Isa isa)
    : Head(vocab_size, hidden_size, isa, matrix_kernels(precision, isa),
           Linear(weight, bias, vocab_size, hidden_size, matrix_kernels(precision, isa))) {
  if (subset == nullptr) return;
  const int64_t padded = ceil_div(vocab_size, tile_columns_) * tile_columns_;
  float* penalty = subset_penalty_.reserve(padded);
  std::fill_n(penalty, padded, kMinusInfinity);
  for (int64_t v = 0; v < vocab_size; ++v) penalty[v] = subset[v] != 0 ? 0.0f : kMinusInfinity;
}

void Head::score(const HeadInputs& inputs, const HeadOutputs& outputs) const {
  if (packs_by_tile_) {
    Workspace workspace;
    Pass(*this, inputs, outputs, workspace).run();
  } else {
    thread_local Workspace workspace;
    Pass(*this, inputs, outputs, workspace).run();
  }
}

void check_head_inputs(const HeadInputs& inputs, int64_t num_targets, int64_t vocab_size) {
  const int64_t* offsets = inputs.target_offsets;
  if (offsets[0] != 0 || offsets[inputs.num_rows] != num_targets ||
      !std::is_sorted(offsets, offsets + inputs.num_rows + 1)) {
    throw std::invalid_argument("target_offsets must rise from 0 to the number of targets, " +
                                std::to_string(num_targets));
  }
  for (int64_t t = 0; t < num_targets; ++t) {
    if (inputs.target_ids[t] < 0 || inputs.target_ids[t] >= vocab_size) {
      throw std::invalid_argument("target_ids[" + std::to_string(t) + "] is " +
                                  std::to_string(inputs.target_ids[t]) + ", but the vocabulary has " +
                                  std::to_string(vocab_size) + " entries");
    }
  }
}

}  // namespace mlmfast
