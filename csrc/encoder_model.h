// An encoder's weights, packed for the kernels it runs with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "cpu/packed_attention.h"
#include "cpu/sequence_kernels.h"
#include "hidden_attention.h"
#include "mlmfast/matrix.h"
#include "mlmfast/model_spec.h"
#include "mlmfast/weights.h"

namespace mlmfast {

struct Norm {
  std::vector<float> weight, bias;
  float eps = 0;

  void apply(const SequenceKernels& kernels, const float* x, int64_t size, float* y) const {
    kernels.layer_norm(x, size, weight.data(), bias.empty() ? nullptr : bias.data(), eps, y);
  }
};

// A table of embeddings in the checkpoint's own dtype, kept apart from the file: it is read from as long as
// the model lives, and files change.
class EmbeddingTable {
 public:
  EmbeddingTable() = default;
  explicit EmbeddingTable(const WeightView& view)
      : bytes_(view.data, view.data + view.num_bytes()), view_(view) {}

  // x [columns]
  void read(int64_t row, float* x) const {
    WeightView view = view_;
    view.data = bytes_.data();
    view.read(row * view.columns, view.columns, x);
  }

 private:
  std::vector<std::byte> bytes_;
  WeightView view_;
};

struct Layer {
  std::optional<Norm> attention_norm;
  Norm mlp_norm;
  Linear query, key_value, attention_output;
  std::optional<Linear> mlp_input;         // one of the two
  std::optional<GatedLinear> gated_input;
  Linear mlp_output;
};

// cos and sin [positions, half] of one rotary base.
struct RotaryTable {
  std::vector<float> cosines, sines;
  int64_t half;

  RotaryTable(int64_t positions, const std::vector<double>& inverse_frequencies);
};

struct EncoderModel {
  ModelSpec spec;
  const SequenceKernels& sequence;
  const MatrixKernels& products;
  const MatrixKernels& head_products;
  const PackedAttentionKernels* packed_attention;  // of layers that see whole rows; null: attention is of floats
  bool projects_packed;  // whether queries, keys and values are packed as soon as they are there
  EmbeddingTable word_embeddings;
  std::vector<float> position_embeddings, type_embeddings;
  std::optional<Norm> embedding_norm, final_norm;
  std::optional<Linear> embedding_projection;
  std::vector<Layer> layers;  // one where they are shared
  std::optional<HiddenAttention> last_attention;  // where the last layer's keys are not turned
  std::vector<RotaryTable> rotary;
  std::vector<int> rotary_of_layer;
  std::optional<Linear> head_dense;  // of a vocabulary head, and so is its norm
  Norm head_norm;

  EncoderModel(const ModelSpec& model, const Weights& weights, Precision precision, Isa isa);

  const Layer& layer(int64_t index) const { return layers[spec.shared_layers ? 0 : index]; }

 private:
  Norm norm(const Weights& weights, Role weight, Role bias, int64_t index = 0) const;
  template <class Product = Linear>
  Product linear(const Weights& weights, const std::vector<std::pair<Role, Role>>& parts, int64_t index,
                 const MatrixKernels& kernels) const;
  Layer make_layer(const Weights& weights, int64_t index) const;
  HiddenAttention make_last_attention(const Weights& weights, int64_t index) const;
  void make_rotary(const Weights& weights);
};

}  // namespace mlmfast
