#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/matrix_kernels.h"
#include "mlmfast/linear_scoring_rule.h"
#include "parallel.h"

namespace mlmfast {
namespace {

// Logits stand as [class, row], so that what belongs to a row runs along the lanes of a vector: gradients by
// them are left factors of the product with the input, and right ones of the product with the weight.

constexpr int64_t kPackedWords = 2048 * 1024;  // of a chunk of rows, in both forms: 8 MB
constexpr int64_t kTileWords = 192 * 1024;     // of a tile of classes
constexpr int64_t kMaxTileClasses = 384;
constexpr int64_t kPartClasses = 192;         // of a tile, whose gradients by the weight wait to be rounded
constexpr int64_t kBlockFloats = 128 * 1024;  // logits that stay in L2

enum Column { kLse, kA, kB, kUnused, kU, kD, kTargetGradient };
enum Lane { kLaneLse, kLaneA, kLaneB, kLaneU, kLaneUpstream, kNumLanes };

int64_t round_up(int64_t a, int64_t unit) { return (a + unit - 1) / unit * unit; }

void store_as(DType dtype, const float* values, int64_t count, void* out, int64_t begin) {
  if (dtype == DType::f32) {
    std::copy_n(values, count, static_cast<float*>(out) + begin);
    return;
  }
  uint16_t* words = static_cast<uint16_t*>(out) + begin;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i]);
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    words[i] = static_cast<uint16_t>((is_nan ? bits | 0x400000 : bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
}

// Scratch of one thread.
struct Workspace {
  explicit Workspace(const MatrixKernels& k)
      : input(k),
        input_transposed(k),
        gradients_by_row(k),
        weight(k),
        weight_transposed(k),
        gradients_by_class(k) {}

  Linear input;               // [rows, D] of the chunk
  Linear input_transposed;    // [D, rows]
  Linear gradients_by_row;    // [rows, classes] of the tile
  Operand weight;             // [classes, D]
  Operand weight_transposed;  // [D, classes]
  Operand gradients_by_class;  // [classes, rows]
  AlignedBuffer lanes;         // [kNumLanes, rows]
  AlignedBuffer floats;        // [rows, D], then the gradient by the input, transposed: [panels, D, rows of a panel]
  AlignedBuffer classes;       // [classes, D]
  // One after the other: logits [classes, rows of a block], the gradient by the weight [classes of a part, D], the
  // weight transposed [D, classes] or in pairs [classes / 2, D, 2], the gradient by the input [rows of a panel, D].
  AlignedBuffer tile;
  std::vector<float> class_sums;              // [classes]
  std::vector<int64_t> rows;                  // of the call that are not ignored
  std::vector<LogitGradients::Target> targets;  // of the chunk, by panel, then by class
  std::vector<int64_t> target_offsets;          // [panels + 1]
  std::vector<LogitGradients::Target> tile_targets;
};

// What one thread does: all rows, a slice of the classes.
class Backward {
 public:
  // input_dtype: of the gradient by the input.
  Backward(const LinearScoringRule& call, const ClassSlice& slice, const float* coefficients, const float* upstream,
           const LinearGradients& gradients, DType input_dtype)
      : call_(call),
        slice_(slice),
        coefficients_(coefficients),
        upstream_(upstream),
        gradients_(gradients),
        input_dtype_(input_dtype),
        kernels_(matrix_kernels(call.precision, call.isa)),
        w_(kernels_),
        columns_(call.input.columns),
        panel_rows_(kernels_.panel_columns) {}

  void run() {
    w_.rows.clear();
    for (int64_t row = 0; row < call_.input.rows; ++row) {
      if (call_.targets[row] >= 0) w_.rows.push_back(row);
    }
    const int64_t num_rows = static_cast<int64_t>(w_.rows.size());
    if (num_rows == 0) return;
    const int64_t row_words = round_up(columns_, kernels_.row_unit) / kernels_.values_per_word * kernels_.num_planes;
    const int64_t max_rows = std::max(panel_rows_, kPackedWords / (2 * row_words) / panel_rows_ * panel_rows_);
    const int64_t num_chunks = (num_rows + max_rows - 1) / max_rows;
    tile_classes_ = std::clamp(kTileWords / row_words / kernels_.row_unit * kernels_.row_unit, kernels_.row_unit,
                               kMaxTileClasses);
    AlignedBuffer sums;  // [V, D] over the chunks, where the gradient by the weight can't hold them
    if (gradients_.weight != nullptr && num_chunks > 1 && call_.weight.dtype != DType::f32) {
      sums_ = sums.reserve((slice_.end - slice_.begin) * columns_) - slice_.begin * columns_;
    }
    for (int64_t c = 0; c < num_chunks; ++c) {
      is_first_ = c == 0;
      start_rows(round_up(c * num_rows / num_chunks, panel_rows_),
                 std::min(num_rows, round_up((c + 1) * num_rows / num_chunks, panel_rows_)));
      for (int64_t first = slice_.begin; first < slice_.end; first += tile_classes_) {
        take_classes(first, std::min(tile_classes_, slice_.end - first));
      }
      if (gradients_.input != nullptr) write_input_gradients();
    }
    if (sums_ == nullptr) return;
    const int64_t begin = slice_.begin * columns_;
    store_as(call_.weight.dtype, sums_ + begin, slice_.end * columns_ - begin, gradients_.weight, begin);
  }

 private:
  void start_rows(int64_t begin, int64_t end) {
    begin_ = begin;
    num_rows_ = end - begin;
    padded_rows_ = round_up(num_rows_, panel_rows_);
    fill_lanes();
    order_targets();
    float* floats = w_.floats.reserve(columns_ * padded_rows_);
    for (int64_t r = 0; r < num_rows_; ++r) {
      call_.input.read(w_.rows[begin_ + r] * columns_, columns_, floats + r * columns_);
    }
    w_.input.assign(rows_of(floats, columns_), nullptr, num_rows_, columns_);
    if (gradients_.weight != nullptr) {
      const auto read = [&](int64_t first, int64_t count, float* rows) {
        kernels_.transpose(floats + first, columns_, num_rows_, count, rows, num_rows_);
      };
      w_.input_transposed.assign(read, nullptr, columns_, num_rows_);
    }
    if (gradients_.input != nullptr) std::fill_n(floats, columns_ * padded_rows_, 0.0f);
  }

  void fill_lanes() {
    float* lanes = w_.lanes.reserve(kNumLanes * padded_rows_);
    std::fill_n(lanes, kNumLanes * padded_rows_, 0.0f);
    std::fill_n(lanes + kLaneLse * padded_rows_, padded_rows_, std::numeric_limits<float>::infinity());
    for (int64_t r = 0; r < num_rows_; ++r) {
      const float* c = row_coefficients(r);
      lanes[kLaneLse * padded_rows_ + r] = c[kLse];
      lanes[kLaneA * padded_rows_ + r] = c[kA];
      lanes[kLaneB * padded_rows_ + r] = c[kB];
      lanes[kLaneU * padded_rows_ + r] = c[kU];
      lanes[kLaneUpstream * padded_rows_ + r] = upstream_[w_.rows[begin_ + r]];
    }
  }

  const float* row_coefficients(int64_t r) const { return coefficients_ + w_.rows[begin_ + r] * kNumCoefficients; }

  void order_targets() {
    const int64_t num_panels = padded_rows_ / panel_rows_;
    w_.targets.clear();
    w_.target_offsets.assign(1, 0);
    for (int64_t panel = 0; panel < num_panels; ++panel) {
      const int64_t first = panel * panel_rows_, end = std::min(num_rows_, first + panel_rows_);
      for (int64_t r = first; r < end; ++r) {
        const int64_t row = w_.rows[begin_ + r];
        w_.targets.push_back({static_cast<int32_t>(call_.targets[row]), static_cast<int32_t>(r - first),
                              row_coefficients(r)[kTargetGradient] * upstream_[row]});
      }
      std::sort(w_.targets.begin() + first, w_.targets.end(),
                [](const auto& a, const auto& b) { return a.class_index < b.class_index; });
      w_.target_offsets.push_back(end);
    }
  }

  // The gradients by the logits of a tile of classes, and what follows from them.
  void take_classes(int64_t first, int64_t count) {
    pack_classes(first, count);
    w_.gradients_by_class.resize(count, num_rows_);
    const OperandView by_class = w_.gradients_by_class.view();
    float* panels = w_.gradients_by_row.reserve(num_rows_, count);
    const int64_t class_words = round_up(count, kernels_.row_unit) / kernels_.values_per_word;
    w_.class_sums.assign(count, 0.0f);

    const int64_t block = std::max(panel_rows_, kBlockFloats / tile_classes_ / panel_rows_ * panel_rows_);
    float* logits = w_.tile.reserve(tile_classes_ * block);
    for (int64_t begin = 0; begin < padded_rows_; begin += block) {
      const int64_t rows = std::min(block, padded_rows_ - begin);
      w_.input.store_part(w_.weight, 0, count, begin, rows, logits, block);
      for (int64_t r = begin; r < begin + rows; r += panel_rows_) {
        LogitGradients tile{};
        tile.logits = logits + (r - begin);
        tile.stride = block;
        tile.bias = call_.bias == nullptr ? nullptr : call_.bias + first;
        tile.num_classes = count;
        const float* lanes = w_.lanes.data() + r;
        tile.lse = lanes + kLaneLse * padded_rows_;
        tile.a = lanes + kLaneA * padded_rows_;
        tile.b = lanes + kLaneB * padded_rows_;
        tile.u = lanes + kLaneU * padded_rows_;
        tile.upstream = lanes + kLaneUpstream * padded_rows_;
        if (call_.rule.has_tail()) {
          tile.tail_threshold = static_cast<float>(call_.rule.smoothing / static_cast<double>(call_.weight.rows));
          tile.d = -tile.tail_threshold;
        }
        tile.operand = by_class;
        tile.operand.words += r / kernels_.values_per_word;
        tile.panel = panels + r * class_words * kernels_.num_planes;
        tile.class_words = class_words;
        tile.class_sums = w_.class_sums.data();
        set_targets(tile, r / panel_rows_, first, count);
        kernels_.logit_gradients(tile);
      }
    }
    if (gradients_.bias != nullptr) {
      for (int64_t c = 0; c < count; ++c) gradients_.bias[first + c] += w_.class_sums[c];
    }
    if (gradients_.weight != nullptr) add_weight_gradients(first, count);
    if (gradients_.input != nullptr) {
      pack_classes_transposed(first, count);
      for (int64_t r = 0; r < padded_rows_; r += panel_rows_) {
        float* sums = w_.floats.data() + r * columns_;
        w_.gradients_by_row.add_part(w_.weight_transposed, r, panel_rows_, sums, panel_rows_);
      }
    }
  }

  // The weight as it is, where it is bfloat16 and so is the precision, else null.
  const uint16_t* weight_words() const {
    const bool is_bf16 = call_.weight.dtype == DType::bf16 && call_.precision == Precision::bfloat16;
    return is_bf16 ? reinterpret_cast<const uint16_t*>(call_.weight.data) : nullptr;
  }

  void pack_classes(int64_t first, int64_t count) {
    w_.weight.resize(count, columns_);
    if (const uint16_t* words = weight_words()) {
      w_.weight.write_bf16(0, words + first * columns_, columns_, count);
    } else {
      w_.weight.write(0, read_classes(first, count), columns_, count);
    }
  }

  void pack_classes_transposed(int64_t first, int64_t count) {
    w_.weight_transposed.resize(columns_, count);
    if (const uint16_t* words = weight_words()) {
      const int64_t num_pairs = round_up(count, kernels_.row_unit) / 2;
      float* pairs = w_.tile.reserve(num_pairs * columns_);  // of neighbours in a column
      for (int64_t pair = 0; pair < num_pairs; ++pair) {
        const int64_t left = std::max<int64_t>(0, std::min<int64_t>(2, count - 2 * pair));
        pair_rows(words + (first + 2 * pair) * columns_, left, reinterpret_cast<uint16_t*>(pairs + pair * columns_));
      }
      const OperandView out = w_.weight_transposed.view();
      kernels_.transpose(pairs, columns_, num_pairs, columns_, out.words, out.stride);
    } else {
      float* transposed = w_.tile.reserve(columns_ * count);
      kernels_.transpose(read_classes(first, count), columns_, count, columns_, transposed, count);
      w_.weight_transposed.write(0, transposed, count, columns_);
    }
  }

  // The values of num_rows rows, at most 2, alternately; 0 for the rows beyond.
  void pair_rows(const uint16_t* rows, int64_t num_rows, uint16_t* pairs) const {
    if (num_rows == 2) {
      for (int64_t i = 0; i < columns_; ++i) {
        pairs[2 * i] = rows[i];
        pairs[2 * i + 1] = rows[columns_ + i];
      }
    } else {
      std::fill_n(pairs, 2 * columns_, uint16_t{0});
      for (int64_t i = 0; num_rows == 1 && i < columns_; ++i) pairs[2 * i] = rows[i];
    }
  }

  // As floats; a bfloat16 weight is read anew for every product.
  const float* read_classes(int64_t first, int64_t count) {
    if (call_.weight.dtype == DType::f32) {
      return reinterpret_cast<const float*>(call_.weight.data) + first * columns_;
    }
    float* rows = w_.classes.reserve(tile_classes_ * columns_);
    call_.weight.read(first * columns_, count * columns_, rows);
    return rows;
  }

  // The targets of a panel of rows among a tile's classes, as indices of the tile.
  void set_targets(LogitGradients& tile, int64_t panel, int64_t first, int64_t count) {
    const auto before = [](const LogitGradients::Target& t, int64_t c) { return t.class_index < c; };
    const auto begin = w_.targets.begin() + w_.target_offsets[panel], end = w_.targets.begin() + w_.target_offsets[panel + 1];
    const auto from = std::lower_bound(begin, end, first, before), to = std::lower_bound(from, end, first + count, before);
    w_.tile_targets.assign(from, to);
    for (LogitGradients::Target& t : w_.tile_targets) t.class_index -= static_cast<int32_t>(first);
    tile.targets = w_.tile_targets.data();
    tile.targets_end = tile.targets + w_.tile_targets.size();
  }

  void add_weight_gradients(int64_t first, int64_t count) {
    if (sums_ == nullptr && call_.weight.dtype != DType::f32) {
      float* part = w_.tile.reserve(kPartClasses * columns_);
      for (int64_t begin = 0; begin < count; begin += kPartClasses) {
        const int64_t classes = std::min(kPartClasses, count - begin);
        w_.input_transposed.store_part(w_.gradients_by_class, begin, classes, 0, columns_, part, columns_);
        store_as(call_.weight.dtype, part, classes * columns_, gradients_.weight, (first + begin) * columns_);
      }
      return;
    }
    float* out = (sums_ != nullptr ? sums_ : static_cast<float*>(gradients_.weight)) + first * columns_;
    if (is_first_) {
      w_.input_transposed.store(w_.gradients_by_class, out, columns_);
    } else {
      w_.input_transposed.add(w_.gradients_by_class, out, columns_);
    }
  }

  void write_input_gradients() {
    float* rows = w_.tile.reserve(panel_rows_ * columns_);
    for (int64_t begin = 0; begin < num_rows_; begin += panel_rows_) {
      const int64_t count = std::min(panel_rows_, num_rows_ - begin);
      kernels_.transpose(w_.floats.data() + begin * columns_, panel_rows_, columns_, count, rows, columns_);
      for (int64_t r = 0; r < count; ++r) {
        store_as(input_dtype_, rows + r * columns_, columns_, gradients_.input,
                 w_.rows[begin_ + begin + r] * columns_);
      }
    }
  }

  const LinearScoringRule& call_;
  ClassSlice slice_;
  const float* coefficients_;
  const float* upstream_;
  LinearGradients gradients_;
  DType input_dtype_;
  const MatrixKernels& kernels_;
  Workspace w_;
  int64_t columns_, panel_rows_;
  int64_t tile_classes_ = 0;
  bool is_first_ = false;  // chunk
  float* sums_ = nullptr;
  int64_t begin_ = 0, num_rows_ = 0, padded_rows_ = 0;  // of the chunk
};

// What no slice writes.
void clear(const LinearScoringRule& call, const LinearGradients& gradients) {
  const auto zero = [](void* values, DType dtype, int64_t begin, int64_t count) {
    const int64_t size = dtype_size(dtype);
    std::memset(static_cast<std::byte*>(values) + begin * size, 0, count * size);
  };
  const int64_t columns = call.input.columns;
  if (gradients.bias != nullptr) std::fill_n(gradients.bias, call.weight.rows, 0.0f);
  const bool all_ignored = std::all_of(call.targets, call.targets + call.input.rows, [](int64_t t) { return t < 0; });
  if (gradients.weight != nullptr && all_ignored) {
    zero(gradients.weight, call.weight.dtype, 0, call.weight.rows * columns);
  }
  for (int64_t row = 0; gradients.input != nullptr && row < call.input.rows; ++row) {
    if (call.targets[row] < 0) zero(gradients.input, call.input.dtype, row * columns, columns);
  }
}

}  // namespace

void linear_scoring_rule_backward(const LinearScoringRule& call, const float* coefficients, const float* upstream,
                                  const LinearGradients& gradients) {
  if (matrix_kernels(call.precision, call.isa).logit_gradients == nullptr) {
    throw std::invalid_argument(
        "gradients in precision int8 are not available; use float32, bf16x3, bf16x4 or bfloat16");
  }
  clear(call, gradients);
  const std::vector<ClassSlice> slices = class_slices(call);
  const int64_t num_slices = static_cast<int64_t>(slices.size()), size = call.input.rows * call.input.columns;
  if (num_slices == 1 || gradients.input == nullptr) {
    in_parallel(num_slices, [&](int64_t i) {
      Backward(call, slices[i], coefficients, upstream, gradients, call.input.dtype).run();
    });
    return;
  }
  std::vector<AlignedBuffer> parts(num_slices);  // of the gradient by the input
  in_parallel(num_slices, [&](int64_t i) {
    LinearGradients own = gradients;
    own.input = parts[i].reserve(size);
    Backward(call, slices[i], coefficients, upstream, own, DType::f32).run();
  });
  float* sum = parts[0].data();
  for (int64_t row = 0; row < call.input.rows; ++row) {
    if (call.targets[row] < 0) continue;
    const int64_t begin = row * call.input.columns, end = begin + call.input.columns;
    for (int64_t part = 1; part < num_slices; ++part) {
      for (int64_t i = begin; i < end; ++i) sum[i] += parts[part].data()[i];
    }
    store_as(call.input.dtype, sum + begin, end - begin, gradients.input, begin);
  }
}

}  // namespace mlmfast
