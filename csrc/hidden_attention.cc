#include "hidden_attention.h"

#include <cmath>

namespace mlmfast {

constexpr int64_t kMaxQueries = 64;  // of rows that attend together; one row may have more

HiddenAttention::HiddenAttention(const ReadRows& key, const ReadRows& value, const float* value_bias,
                                 int64_t hidden_size, int64_t num_heads, const MatrixKernels& products,
                                 const SequenceKernels& kernels)
    : kernels_(kernels), hidden_(hidden_size), head_size_(hidden_size / num_heads) {
  std::vector<float> rows(head_size_ * hidden_), columns(rows.size());
  for (int64_t first = 0; first < hidden_; first += head_size_) {
    key(first, head_size_, rows.data());
    for (int64_t i = 0; i < hidden_; ++i) {
      for (int64_t k = 0; k < head_size_; ++k) columns[i * head_size_ + k] = rows[k * hidden_ + i];
    }
    keys_.emplace_back(columns.data(), nullptr, hidden_, head_size_, products);
    value(first, head_size_, rows.data());
    values_.emplace_back(rows.data(), value_bias == nullptr ? nullptr : value_bias + first, head_size_, hidden_,
                         products);
  }
}

void HiddenAttention::attend(float* queries, const int64_t* query_starts, const float* x, const int64_t* row_starts,
                             int64_t num_rows, Operand& operand, Scratch& scratch) const {
  for (int64_t first = 0, last; first < num_rows; first = last) {
    last = first + 1;
    while (last < num_rows && query_starts[last + 1] - query_starts[first] <= kMaxQueries) ++last;
    attend_together(queries + query_starts[first] * hidden_, query_starts + first, x, row_starts + first, last - first,
                    operand, scratch);
  }
}

void HiddenAttention::attend_together(float* queries, const int64_t* query_starts, const float* x,
                                      const int64_t* row_starts, int64_t num_rows, Operand& operand,
                                      Scratch& scratch) const {
  const int64_t num_heads = static_cast<int64_t>(keys_.size()), stride = num_heads * hidden_;
  const int64_t num_queries = query_starts[num_rows] - query_starts[0];
  float* hidden_queries = scratch.queries.reserve(num_queries * stride);
  float* hidden_contexts = scratch.contexts.reserve(num_queries * stride);
  for (int64_t h = 0; h < num_heads; ++h) {
    operand.resize(num_queries, head_size_);
    operand.write(0, queries + h * head_size_, hidden_, num_queries);
    keys_[h].store(operand, hidden_queries + h * hidden_, stride);
  }
  HeadAttention a{};
  a.query_stride = a.key_stride = a.head_size = a.output_stride = hidden_;
  a.scale = 1.0f / std::sqrt(static_cast<float>(head_size_));
  a.reach = -1;
  for (int64_t r = 0; r < num_rows; ++r) {
    const int64_t begin = (query_starts[r] - query_starts[0]) * stride;
    a.queries = hidden_queries + begin;
    a.num_queries = (query_starts[r + 1] - query_starts[r]) * num_heads;
    a.keys = a.values = x + row_starts[r] * hidden_;
    a.length = row_starts[r + 1] - row_starts[r];
    a.output = hidden_contexts + begin;
    kernels_.attend(a, scratch.attention.reserve(kernels_.attention_scratch(a.length, hidden_)));
  }
  for (int64_t h = 0; h < num_heads; ++h) {
    operand.resize(num_queries, hidden_);
    operand.write(0, hidden_contexts + h * hidden_, stride, num_queries);
    values_[h].store(operand, queries + h * head_size_, hidden_);
  }
}

}  // namespace mlmfast
