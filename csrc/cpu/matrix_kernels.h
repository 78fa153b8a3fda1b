// What every precision and instruction set provides to matrix products.
#pragma once

#include <cstdint>

#include "mlmfast/matrix.h"

namespace mlmfast {

constexpr int kNumActivations = 5;

// x W^T + b for one weight, or for two that share x. Words are 32 bits: a float32, two bfloat16 or four int8.
struct MatrixProduct {
  const float* x;  // [num_rows, x_stride] words; readable up to whole blocks of rows
  int64_t x_stride;
  int64_t num_rows;        // m
  int64_t num_words;       // of a row of x in one plane, padding included
  int64_t num_columns;     // N
  const float* panels[2];  // [panels, planes, num_words, panel_columns]; the second only if gated
  const float* biases[2];  // [N rounded up to whole panels], and so below
  // What sums start from: the biases, or, where products are scaled, int32. Those become floats, times the
  // scale of their row of x (behind its words) and of their column, plus the bias.
  const float* starts[2];
  const float* scales[2];
};

// Where results go as an operand.
struct OperandView {
  float* words;  // [num_rows, stride]
  int64_t stride;
  int64_t plane_words;  // from a row's high parts to its low ones, or to its scale
};

// The gradients of a scoring rule by the logits [num_classes, panel_columns] of a panel of rows:
// g = upstream ((a + b p) p + u + d [p < tail_threshold]) with p = exp(logit + bias - lse), but for the targets.
struct LogitGradients {
  const float* logits;  // [num_classes, stride] without the bias
  int64_t stride;
  const float* bias;  // [num_classes] or null
  int64_t num_classes;
  // Of every row, 64-byte aligned; padded with rows of upstream 0 and lse inf.
  const float *lse, *a, *b, *u, *upstream;
  float d, tail_threshold;

  // The gradients of the targets among these classes, in the order of the classes.
  struct Target {
    int32_t class_index, row;
    float gradient;
  };
  const Target *targets, *targets_end;

  // Where g goes: as rows of a left operand, from this panel's words on, and as a panel of a weight
  // [planes, class_words, panel_columns], whose classes beyond num_classes become 0.
  OperandView operand;
  float* panel;
  int64_t class_words;
  float* class_sums;  // [num_classes] += the sum of g over the rows
};

struct MatrixKernels {
  using Activate = void (*)(const MatrixProduct& product, const OperandView& out);

  Precision precision;
  Isa isa;
  int64_t block_rows;     // rows of x a kernel may read at once
  int64_t panel_columns;  // N is padded to multiples of it
  int64_t row_unit;       // K is padded to multiples of it
  int64_t values_per_word;
  int64_t activated_values_per_word;  // while a row is not yet whole; never more than values_per_word
  int64_t num_planes;
  bool is_scaled;
  int64_t left_offset;  // what encode adds to each int8, modulo 256; the kernels want it in x alone

  // `size` values, then zeros up to whole units, as words, then the scale; plane_words as in OperandView.
  void (*encode)(const float* values, int64_t size, float* words, int64_t plane_words);
  void (*store)(const MatrixProduct& product, float* out, int64_t stride);
  void (*add)(const MatrixProduct& product, float* out, int64_t stride);
  // Words of two bfloat16, whole panels of columns; where factors are bfloat16, parts of that or less, else null.
  void (*store_bf16)(const MatrixProduct& product, const OperandView& out);
  // Rows of bfloat16 to int8 and their scale, in place; where products are scaled, else null.
  void (*quantise_rows)(const OperandView& rows, int64_t num_rows, int64_t num_columns);
  Activate activate[kNumActivations];        // by Activation
  Activate activate_gated[kNumActivations];  // by Activation
  void (*logit_gradients)(const LogitGradients& gradients);  // none for int8
  // to [num_columns, to_stride] = the transpose of from [num_rows, from_stride].
  void (*transpose)(const float* from, int64_t from_stride, int64_t num_rows, int64_t num_columns, float* to,
                    int64_t to_stride);
};

}  // namespace mlmfast
