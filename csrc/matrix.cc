#include "mlmfast/matrix.h"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/matrix_kernels.h"

namespace mlmfast {

extern const MatrixKernels kMatrixGeneric[3];
#ifdef MLMFAST_X86_64
extern const MatrixKernels kMatrixAvx2[3];
extern const MatrixKernels kMatrixAvx512[3];
extern const MatrixKernels kMatrixAvx512Bf16[2];
extern const MatrixKernels kMatrixAmx[2];
#endif

namespace {

int64_t round_up(int64_t a, int64_t unit) { return (a + unit - 1) / unit * unit; }

std::span<const MatrixKernels> kernels_of(Isa isa) {
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

const char* precision_name(Precision precision) {
  switch (precision) {
    case Precision::bf16x3:
      return "bf16x3";
    case Precision::bfloat16:
      return "bfloat16";
    default:
      return "float32";
  }
}

Precision precision_from_name(const std::string& name) {
  for (Precision precision : {Precision::float32, Precision::bf16x3, Precision::bfloat16}) {
    if (name == precision_name(precision)) return precision;
  }
  throw std::invalid_argument("precision '" + name + "' is unknown; use float32, bf16x3 or bfloat16");
}

const MatrixKernels& matrix_kernels(Precision precision, Isa isa) {
  const std::vector<Isa> isas = available_isas();
  if (std::find(isas.begin(), isas.end(), isa) == isas.end()) {
    throw std::invalid_argument("matrix products on " + std::string(isa_name(isa)) +
                                " are not available on this CPU; use isa_from_name to see what is");
  }
  if (precision == Precision::float32) isa = std::min(isa, Isa::avx512);
  const std::span<const MatrixKernels> kernels = kernels_of(isa);
  return *std::find_if(kernels.begin(), kernels.end(),
                       [&](const MatrixKernels& k) { return k.precision == precision; });
}

void Operand::resize(int64_t num_rows, int64_t num_columns) {
  constexpr int64_t kLineWords = 16;
  num_rows_ = num_rows;
  num_columns_ = num_columns;
  plane_words_ = round_up(num_columns, kernels_->panel_columns) / kernels_->values_per_word;
  const int64_t num_lines = round_up(plane_words_ * kernels_->num_planes, kLineWords) / kLineWords;
  stride_ = (num_lines | 1) * kLineWords;
  words_.reserve(round_up(num_rows, kernels_->block_rows) * stride_);
}

void Operand::write(int64_t first_row, const float* x, int64_t stride, int64_t num_rows) {
  for (int64_t r = 0; r < num_rows; ++r) {
    kernels_->encode(x + r * stride, num_columns_, words_.data() + (first_row + r) * stride_, plane_words_);
  }
}

OperandView Operand::start(const Operand& x, int64_t num_columns) {
  if (kernels_ != x.kernels_ || this == &x) {
    throw std::invalid_argument("the result of a product must be another operand with the same kernels");
  }
  resize(x.num_rows_, num_columns);
  return {words_.data(), stride_, plane_words_};
}

Linear::Linear(const float* weight, const float* bias, int64_t num_rows, int64_t num_columns,
               const MatrixKernels& kernels)
    : kernels_(kernels),
      num_rows_(num_rows),
      num_columns_(num_columns),
      plane_words_(round_up(num_columns, kernels.panel_columns) / kernels.values_per_word) {
  const int64_t padded_rows = round_up(num_rows_, kernels.panel_columns);
  float* packed_bias = bias_.reserve(padded_rows);
  std::fill_n(packed_bias, padded_rows, 0.0f);
  if (bias != nullptr) std::copy_n(bias, num_rows_, packed_bias);
  pack(weight);
}

void Linear::pack(const float* weight) {
  const int64_t columns = kernels_.panel_columns, row_words = plane_words_ * kernels_.num_planes;
  float* panel = panels_.reserve(round_up(num_rows_, columns) * row_words);
  AlignedBuffer encoded;  // [columns, stride]
  const int64_t stride = round_up(row_words, 16);
  float* rows = encoded.reserve(columns * stride);
  for (int64_t first = 0; first < num_rows_; first += columns, panel += columns * row_words) {
    const int64_t num_rows = std::min(columns, num_rows_ - first);
    std::fill_n(rows, columns * stride, 0.0f);
    for (int64_t c = 0; c < num_rows; ++c) {
      kernels_.encode(weight + (first + c) * num_columns_, num_columns_, rows + c * stride, plane_words_);
    }
    for (int64_t w = 0; w < row_words; ++w) {
      for (int64_t c = 0; c < columns; ++c) panel[w * columns + c] = rows[c * stride + w];
    }
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
  return {x.words_.data(),        x.stride_, x.num_rows(), plane_words_, num_rows_, {panels_.data(), nullptr},
          {bias_.data(), nullptr}};
}

void Linear::store(const Operand& x, float* out, int64_t stride) const {
  kernels_.store(product(x), out, stride);
}

void Linear::store_part(const Operand& x, int64_t first_row, int64_t num_rows, int64_t first_column,
                        int64_t num_columns, float* out, int64_t stride) const {
  MatrixProduct part = product(x);
  part.x += first_row * part.x_stride;
  part.num_rows = num_rows;
  part.num_columns = num_columns;
  part.panels[0] += first_column * plane_words_ * kernels_.num_planes;
  part.biases[0] += first_column;
  kernels_.store(part, out, stride);
}

int64_t Linear::column_unit() const { return kernels_.panel_columns; }

void Linear::add(const Operand& x, float* out, int64_t stride) const {
  kernels_.add(product(x), out, stride);
}

void Linear::activate(const Operand& x, Activation activation, Operand& out) const {
  kernels_.activate[static_cast<int>(activation)](product(x), out.start(x, num_rows_));
}

GatedLinear::GatedLinear(const float* weight, const float* bias, int64_t num_rows, int64_t num_columns,
                         const MatrixKernels& kernels)
    : activated_(weight, bias, num_rows / 2, num_columns, kernels),
      gate_(weight + num_rows / 2 * num_columns, bias == nullptr ? nullptr : bias + num_rows / 2, num_rows / 2,
            num_columns, kernels) {}

void GatedLinear::activate(const Operand& x, Activation activation, Operand& out) const {
  MatrixProduct product = activated_.product(x);
  product.panels[1] = gate_.panels_.data();
  product.biases[1] = gate_.bias_.data();
  activated_.kernels_.activate_gated[static_cast<int>(activation)](product, out.start(x, num_rows()));
}

}  // namespace mlmfast
