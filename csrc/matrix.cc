#include "mlmfast/matrix.h"

#include <algorithm>
#include <bit>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/matrix_kernels.h"

namespace mlmfast {

extern const MatrixKernels kMatrixGeneric[5];
#ifdef MLMFAST_X86_64
extern const MatrixKernels kMatrixAvx2[5];
extern const MatrixKernels kMatrixAvx512[4];
extern const MatrixKernels kMatrixAvx512Vnni[1];
extern const MatrixKernels kMatrixAvx512Bf16[3];
extern const MatrixKernels kMatrixAmx[4];
#endif

namespace {

int64_t round_up(int64_t a, int64_t unit) { return (a + unit - 1) / unit * unit; }

// `size` values, then zeros up to num_words.
void copy_bf16(const uint16_t* values, int64_t size, float* words, int64_t num_words) {
  uint16_t* out = reinterpret_cast<uint16_t*>(words);
  std::copy_n(values, size, out);
  std::fill(out + size, out + 2 * num_words, uint16_t{0});
}

#ifdef MLMFAST_X86_64
bool has_vnni() {
  static const std::vector<std::string> features = cpu_features();
  static const bool found = std::find(features.begin(), features.end(), "avx512_vnni") != features.end();
  return found;
}
#endif

std::span<const MatrixKernels> kernels_of(Precision precision, Isa isa) {
  if (precision == Precision::float32) isa = std::min(isa, Isa::avx512);
#ifdef MLMFAST_X86_64
  if (precision == Precision::int8 && (isa == Isa::avx512 || isa == Isa::avx512_bf16)) {
    if (has_vnni()) return kMatrixAvx512Vnni;
    isa = Isa::avx2;
  }
#endif
  switch (isa) {
#ifdef MLMFAST_X86_64
    case Isa::avx2:
      return kMatrixAvx2;
    case Isa::avx512:
      return kMatrixAvx512;
    case Isa::avx512_bf16:
      return kMatrixAvx512Bf16;
    case Isa::amx:
      return kMatrixAmx;
#endif
    default:
      return kMatrixGeneric;
  }
}

}  // namespace

ReadRows rows_of(const float* weight, int64_t num_columns) {
  return [=](int64_t first, int64_t count, float* rows) {
    std::copy_n(weight + first * num_columns, count * num_columns, rows);
  };
}

const char* precision_name(Precision precision) {
  switch (precision) {
    case Precision::bf16x3:
      return "bf16x3";
    case Precision::bf16x4:
      return "bf16x4";
    case Precision::bfloat16:
      return "bfloat16";
    case Precision::int8:
      return "int8";
    default:
      return "float32";
  }
}

Precision precision_from_name(const std::string& name) {
  for (Precision precision : kPrecisions) {
    if (name == precision_name(precision)) return precision;
  }
  throw std::invalid_argument("precision '" + name + "' is unknown; use float32, bf16x3, bf16x4, bfloat16 or int8");
}

const MatrixKernels& matrix_kernels(Precision precision, Isa isa) {
  const std::vector<Isa> isas = available_isas();
  if (std::find(isas.begin(), isas.end(), isa) == isas.end()) {
    throw std::invalid_argument("matrix products on " + std::string(isa_name(isa)) +
                                " are not available on this CPU; use isa_from_name to see what is");
  }
  const std::span<const MatrixKernels> kernels = kernels_of(precision, isa);
  return *std::find_if(kernels.begin(), kernels.end(),
                       [&](const MatrixKernels& k) { return k.precision == precision; });
}

void Operand::resize(int64_t num_rows, int64_t num_columns) {
  constexpr int64_t kLineWords = 16;
  num_rows_ = num_rows;
  num_columns_ = num_columns;
  plane_words_ = round_up(num_columns, kernels_->row_unit) / kernels_->values_per_word;
  const int64_t row_words = std::max(plane_words_ * kernels_->num_planes + (kernels_->is_scaled ? 1 : 0),
                                     round_up(num_columns, kernels_->panel_columns) * kernels_->num_planes /
                                         kernels_->activated_values_per_word);
  stride_ = (round_up(row_words, kLineWords) / kLineWords | 1) * kLineWords;
  words_.reserve(round_up(num_rows, kernels_->block_rows) * stride_);
}

void Operand::write(int64_t first_row, const float* x, int64_t stride, int64_t num_rows) {
  for (int64_t r = 0; r < num_rows; ++r) {
    kernels_->encode(x + r * stride, num_columns_, words_.data() + (first_row + r) * stride_, plane_words_);
  }
}

void Operand::write_bf16(int64_t first_row, const uint16_t* x, int64_t stride, int64_t num_rows) {
  for (int64_t r = 0; r < num_rows; ++r) {
    copy_bf16(x + r * stride, num_columns_, words_.data() + (first_row + r) * stride_, plane_words_);
  }
}

OperandView Operand::view() { return {words_.data(), stride_, plane_words_}; }

void Operand::round_bf16() {
  if (kernels_->is_scaled) kernels_->quantise_rows(view(), num_rows_, num_columns_);
}

OperandView Operand::start(const Operand& x, int64_t num_columns) {
  if (kernels_ != x.kernels_ || this == &x) {
    throw std::invalid_argument("the result of a product must be another operand with the same kernels");
  }
  resize(x.num_rows_, num_columns);
  return view();
}

Linear::Linear(const float* weight, const float* bias, int64_t num_rows, int64_t num_columns,
               const MatrixKernels& kernels)
    : Linear(rows_of(weight, num_columns), bias, num_rows, num_columns, kernels) {}

Linear::Linear(const ReadRows& weight, const float* bias, int64_t num_rows, int64_t num_columns,
               const MatrixKernels& kernels)
    : kernels_(kernels) {
  assign(weight, bias, num_rows, num_columns);
  encoded_ = {};
  floats_ = {};
}

void Linear::assign(const ReadRows& weight, const float* bias, int64_t num_rows, int64_t num_columns) {
  reserve(num_rows, num_columns);
  if (bias != nullptr) std::copy_n(bias, num_rows_, bias_.data());
  pack(weight);
}

void Linear::assign_bf16(const uint16_t* weight, const float* bias, int64_t num_rows, int64_t num_columns) {
  float* panel = reserve(num_rows, num_columns);
  if (bias != nullptr) std::copy_n(bias, num_rows_, bias_.data());
  const int64_t columns = kernels_.panel_columns, stride = round_up(plane_words_ + 1, 16);
  float* rows = encoded_.reserve(columns * stride);
  for (int64_t first = 0; first < num_rows_; first += columns, panel += columns * plane_words_) {
    for (int64_t c = 0; c < columns; ++c) {
      const bool is_row = first + c < num_rows_;
      copy_bf16(is_row ? weight + (first + c) * num_columns_ : nullptr, is_row ? num_columns_ : 0, rows + c * stride,
                plane_words_);
    }
    kernels_.transpose(rows, stride, columns, plane_words_, panel, columns);
  }
}

float* Linear::reserve(int64_t num_rows, int64_t num_columns) {
  num_rows_ = num_rows;
  num_columns_ = num_columns;
  plane_words_ = round_up(num_columns, kernels_.row_unit) / kernels_.values_per_word;
  const int64_t padded_rows = round_up(num_rows_, kernels_.panel_columns);
  std::fill_n(bias_.reserve(padded_rows), padded_rows, 0.0f);
  if (kernels_.is_scaled) {
    std::fill_n(scales_.reserve(padded_rows), padded_rows, 0.0f);
    std::fill_n(starts_.reserve(padded_rows), padded_rows, 0.0f);
  }
  return panels_.reserve(padded_rows * plane_words_ * kernels_.num_planes);
}

void Linear::pack(const ReadRows& weight) {
  const int64_t columns = kernels_.panel_columns, row_words = plane_words_ * kernels_.num_planes;
  float* panel = panels_.data();
  const int64_t stride = round_up(row_words + 1, 16);
  float* rows = encoded_.reserve(columns * stride);
  float* values = floats_.reserve(columns * num_columns_);
  for (int64_t first = 0; first < num_rows_; first += columns, panel += columns * row_words) {
    const int64_t num_rows = std::min(columns, num_rows_ - first);
    std::fill_n(rows, columns * stride, 0.0f);
    weight(first, num_rows, values);
    for (int64_t c = 0; c < num_rows; ++c) {
      float* row = rows + c * stride;
      kernels_.encode(values + c * num_columns_, num_columns_, row, plane_words_);
      if (!kernels_.is_scaled) continue;
      scales_.data()[first + c] = row[plane_words_];
      int8_t* const bytes = reinterpret_cast<int8_t*>(row);
      int64_t sum = 0;
      for (int64_t k = 0; k < plane_words_ * kernels_.values_per_word; ++k) {
        bytes[k] = static_cast<int8_t>(bytes[k] - kernels_.left_offset);
        sum += bytes[k];
      }
      starts_.data()[first + c] = std::bit_cast<float>(static_cast<int32_t>(-kernels_.left_offset * sum));
    }
    kernels_.transpose(rows, stride, columns, row_words, panel, columns);
  }
}

MatrixProduct Linear::product(const Operand& x) const {
  if (x.kernels_ != &kernels_ || x.num_columns() != num_columns_) {
    throw std::invalid_argument("a product with a weight of " + std::to_string(num_columns_) +
                                " columns in " + precision_name(kernels_.precision) + " on " +
                                isa_name(kernels_.isa) + " got an operand of " +
                                std::to_string(x.num_columns()) + " columns in " +
                                precision_name(x.kernels_->precision) + " on " + isa_name(x.kernels_->isa));
  }
  MatrixProduct product{x.words_.data(), x.stride_, x.num_rows(), plane_words_, num_rows_, {}, {}, {}, {}};
  describe(product, 0, 0);
  return product;
}

// This weight from first_column on as the product's weight `index`.
void Linear::describe(MatrixProduct& product, int index, int64_t first_column) const {
  product.panels[index] = panels_.data() + first_column * plane_words_ * kernels_.num_planes;
  product.biases[index] = bias_.data() + first_column;
  product.starts[index] = (kernels_.is_scaled ? starts_ : bias_).data() + first_column;
  product.scales[index] = kernels_.is_scaled ? scales_.data() + first_column : nullptr;
}

void Linear::store(const Operand& x, float* out, int64_t stride) const {
  kernels_.store(product(x), out, stride);
}

void Linear::store_bf16(const Operand& x, const OperandView& out) const {
  if (kernels_.store_bf16 == nullptr) {
    throw std::invalid_argument(std::string("results as bfloat16 are not available in precision ") +
                                precision_name(kernels_.precision) + "; use any other");
  }
  kernels_.store_bf16(product(x), out);
}

void Linear::store_part(const Operand& x, int64_t first_row, int64_t num_rows, int64_t first_column,
                        int64_t num_columns, float* out, int64_t stride) const {
  MatrixProduct part = product(x);
  part.x += first_row * part.x_stride;
  part.num_rows = num_rows;
  part.num_columns = num_columns;
  describe(part, 0, first_column);
  kernels_.store(part, out, stride);
}

int64_t Linear::column_unit() const { return kernels_.panel_columns; }

void Linear::add(const Operand& x, float* out, int64_t stride) const {
  kernels_.add(product(x), out, stride);
}

void Linear::add_part(const Operand& x, int64_t first_column, int64_t num_columns, float* out,
                      int64_t stride) const {
  MatrixProduct part = product(x);
  part.num_columns = num_columns;
  describe(part, 0, first_column);
  kernels_.add(part, out, stride);
}

void Linear::activate(const Operand& x, Activation activation, Operand& out) const {
  kernels_.activate[static_cast<int>(activation)](product(x), out.start(x, num_rows_));
}

GatedLinear::GatedLinear(const float* weight, const float* bias, int64_t num_rows, int64_t num_columns,
                         const MatrixKernels& kernels)
    : GatedLinear(rows_of(weight, num_columns), bias, num_rows, num_columns, kernels) {}

GatedLinear::GatedLinear(const ReadRows& weight, const float* bias, int64_t num_rows, int64_t num_columns,
                         const MatrixKernels& kernels)
    : activated_(weight, bias, num_rows / 2, num_columns, kernels),
      gate_([&](int64_t first, int64_t count, float* rows) { weight(num_rows / 2 + first, count, rows); },
            bias == nullptr ? nullptr : bias + num_rows / 2, num_rows / 2, num_columns, kernels) {}

void GatedLinear::activate(const Operand& x, Activation activation, Operand& out) const {
  MatrixProduct product = activated_.product(x);
  gate_.describe(product, 1, 0);
  activated_.kernels_.activate_gated[static_cast<int>(activation)](product, out.start(x, num_rows()));
}

}  // namespace mlmfast
