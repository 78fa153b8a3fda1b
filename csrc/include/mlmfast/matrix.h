// Matrix products with what follows them fused in: y = x W^T + b, stored, added to the residual stream, or
// activated and handed on as the left operand of the next product.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "mlmfast/activation.h"
#include "mlmfast/aligned_buffer.h"
#include "mlmfast/isa.h"

namespace mlmfast {

// How factors are rounded. bf16x3 splits a factor into a high and a low bfloat16 and leaves out low times low: about 16
// bits of each factor count; bf16x4 leaves out nothing. These four sum products in float32. int8 rounds to 127 steps up
// to the largest factor of a row, of x and of W, and sums products exactly.
enum class Precision { float32, bf16x3, bf16x4, bfloat16, int8 };
inline constexpr Precision kPrecisions[] = {Precision::float32, Precision::bf16x3, Precision::bf16x4,
                                            Precision::bfloat16, Precision::int8};

// Whether a product of two factors is a sum of products of their parts.
inline bool sums_parts(Precision precision) {
  return precision == Precision::bf16x3 || precision == Precision::bf16x4;
}

const char* precision_name(Precision precision);

// Throws std::invalid_argument for an unknown name.
Precision precision_from_name(const std::string& name);

struct MatrixKernels;
struct MatrixProduct;
struct OperandView;

// The kernels of a precision on an instruction set. float32 has none of its own above avx512, whose kernels
// then serve. Throws std::invalid_argument for an instruction set this CPU or this build lacks.
const MatrixKernels& matrix_kernels(Precision precision, Isa isa);

// The left operand x [m, K] of products, in the form the kernels read: rows of float32, of bfloat16, of the
// high and then the low parts, or of int8 and then their scale; each part padded with zeros to whole units.
// Memory grows, never shrinks.
class Operand {
 public:
  explicit Operand(const MatrixKernels& kernels) : kernels_(&kernels) {}

  // The content is undefined afterwards.
  void resize(int64_t num_rows, int64_t num_columns);

  // Rounds num_rows rows of x (stride in floats) into the rows from first_row on.
  void write(int64_t first_row, const float* x, int64_t stride, int64_t num_rows);
  // Takes rows of bfloat16 as they are, where that is the precision; stride in values.
  void write_bf16(int64_t first_row, const uint16_t* x, int64_t stride, int64_t num_rows);

  // For a caller that writes words itself.
  OperandView view();
  // After the caller has written all rows as bfloat16, where that or int8 is the precision: whole panels of columns.
  void round_bf16();

  int64_t num_rows() const { return num_rows_; }
  int64_t num_columns() const { return num_columns_; }

 private:
  friend class Linear;
  friend class GatedLinear;

  // Resized to take a product of x with a weight of num_columns rows.
  OperandView start(const Operand& x, int64_t num_columns);

  const MatrixKernels* kernels_;
  int64_t num_rows_ = 0, num_columns_ = 0;
  int64_t plane_words_ = 0;  // 32-bit words of a row in one plane: a float32, two bfloat16 or four int8 each
  int64_t stride_ = 0;       // words from row to row; an odd number of cache lines, to use every cache set
  AlignedBuffer words_;      // [m rounded up to whole blocks, stride_]
};

// Writes the rows [first, first + count) of a weight, one after the other, as floats.
using ReadRows = std::function<void(int64_t first, int64_t count, float* rows)>;

// Those of a weight [*, num_columns] in memory, which must stay there.
ReadRows rows_of(const float* weight, int64_t num_columns);

// A weight W [N, K] and bias b [N] (or null), packed once for one set of kernels. Every product runs in the
// calling thread, and several threads may use one Linear at once. A row's result is the same bits whatever
// rows stand beside it. x must have K columns and operands the same kernels: else std::invalid_argument.
class Linear {
 public:
  Linear(const float* weight, const float* bias, int64_t num_rows, int64_t num_columns,
         const MatrixKernels& kernels);
  // Of a weight read a panel at a time, so that it need not be in memory as floats.
  Linear(const ReadRows& weight, const float* bias, int64_t num_rows, int64_t num_columns,
         const MatrixKernels& kernels);
  // Of no weight yet.
  explicit Linear(const MatrixKernels& kernels) : kernels_(kernels) {}

  // Takes another weight into the same memory, which grows but never shrinks.
  void assign(const ReadRows& weight, const float* bias, int64_t num_rows, int64_t num_columns);
  // One of bfloat16 in memory, as it is, where that is the precision.
  void assign_bf16(const uint16_t* weight, const float* bias, int64_t num_rows, int64_t num_columns);
  // Takes one without a bias that the caller writes, padding included, as words
  // [N / panel_columns rounded up, planes, words of a row in one plane, panel_columns].
  float* reserve(int64_t num_rows, int64_t num_columns);

  // out [m, N] = x W^T + b; stride in floats, here and below.
  void store(const Operand& x, float* out, int64_t stride) const;

  // The same as words of two bfloat16, neighbours in N, or of its high and low parts, in any precision but float32; N
  // must be a multiple of column_unit(), out 64-byte aligned, and its stride and plane_words multiples of 16.
  void store_bf16(const Operand& x, const OperandView& out) const;

  // The columns [first_column, first_column + num_columns) of the floats, for the rows [first_row, first_row + num_rows)
  // of x: the same bits. first_column must be a multiple of column_unit().
  void store_part(const Operand& x, int64_t first_row, int64_t num_rows, int64_t first_column,
                  int64_t num_columns, float* out, int64_t stride) const;
  int64_t column_unit() const;

  // out [m, N] += x W^T + b, in place; and those columns of it.
  void add(const Operand& x, float* out, int64_t stride) const;
  void add_part(const Operand& x, int64_t first_column, int64_t num_columns, float* out, int64_t stride) const;

  // out [m, N] = activation(x W^T + b). out is resized; it must not be x.
  void activate(const Operand& x, Activation activation, Operand& out) const;

  int64_t num_rows() const { return num_rows_; }
  int64_t num_columns() const { return num_columns_; }

 private:
  friend class GatedLinear;

  void pack(const ReadRows& weight);
  MatrixProduct product(const Operand& x) const;
  void describe(MatrixProduct& product, int index, int64_t first_column) const;

  const MatrixKernels& kernels_;
  int64_t num_rows_ = 0, num_columns_ = 0;  // N, K
  int64_t plane_words_ = 0;                 // words of a row of W in one plane, padding included
  AlignedBuffer panels_;           // [N / panel_columns rounded up, planes, plane_words, panel_columns]
  AlignedBuffer bias_;             // [N rounded up], 0 where padded, and so below
  AlignedBuffer scales_, starts_;  // [N rounded up] as in MatrixProduct, where products are scaled
  AlignedBuffer encoded_, floats_;  // [panel_columns, words of a row], [panel_columns, K] while packing
};

// Two products of one operand, the second gating the first: GeGLU and its kin (Shazeer 2020).
class GatedLinear {
 public:
  // weight [2N, K], bias [2N] or null: the activated half first; num_rows is 2N.
  GatedLinear(const float* weight, const float* bias, int64_t num_rows, int64_t num_columns,
              const MatrixKernels& kernels);
  GatedLinear(const ReadRows& weight, const float* bias, int64_t num_rows, int64_t num_columns,
              const MatrixKernels& kernels);

  // out [m, N] = activation(x W1^T + b1) * (x W2^T + b2). out is resized; it must not be x.
  void activate(const Operand& x, Activation activation, Operand& out) const;

  int64_t num_rows() const { return activated_.num_rows(); }  // N
  int64_t num_columns() const { return activated_.num_columns(); }

 private:
  Linear activated_, gate_;
};

}  // namespace mlmfast
