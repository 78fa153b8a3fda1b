#include "encoder_model.h"

#include <algorithm>
#include <cmath>

namespace mlmfast {

RotaryTable::RotaryTable(int64_t positions, const std::vector<double>& inverse_frequencies)
    : cosines(positions * inverse_frequencies.size()),
      sines(cosines.size()),
      half(static_cast<int64_t>(inverse_frequencies.size())) {
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * inverse_frequencies[i];
      cosines[p * half + i] = static_cast<float>(std::cos(angle));
      sines[p * half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

Norm EncoderModel::norm(const Weights& weights, Role weight, Role bias, int64_t index) const {
  return {weights.floats(weight, index),
          weights.has(bias, index) ? weights.floats(bias, index) : std::vector<float>(),
          static_cast<float>(spec.norm_eps)};
}

// The weights of the parts stacked by rows; biases likewise, if they have any.
template <class Product>
Product EncoderModel::linear(const Weights& weights, const std::vector<std::pair<Role, Role>>& parts,
                             int64_t index, const MatrixKernels& kernels) const {
  std::vector<WeightView> views;
  std::vector<float> bias;
  int64_t num_rows = 0;
  for (const auto& [weight_role, bias_role] : parts) {
    views.push_back(weights.tensor(weight_role, index));
    num_rows += views.back().rows;
    if (weights.has(bias_role, index)) {
      const std::vector<float> part = weights.floats(bias_role, index);
      bias.insert(bias.end(), part.begin(), part.end());
    }
  }
  const int64_t columns = views[0].columns;
  const auto read = [&](int64_t first, int64_t count, float* rows) {
    for (const WeightView& view : views) {
      const int64_t here = std::clamp<int64_t>(view.rows - first, 0, count);
      view.read(first * columns, here * columns, rows);
      first = std::max<int64_t>(0, first - view.rows);
      count -= here;
      rows += here * columns;
    }
  };
  return Product(read, bias.empty() ? nullptr : bias.data(), num_rows, columns, kernels);
}

Layer EncoderModel::make_layer(const Weights& weights, int64_t index) const {
  std::optional<Norm> attention_norm;
  if (weights.has(Role::attention_norm_weight, index)) {
    attention_norm = norm(weights, Role::attention_norm_weight, Role::attention_norm_bias, index);
  }
  const std::pair<Role, Role> input = {Role::mlp_input_weight, Role::mlp_input_bias};
  const std::pair<Role, Role> gate = {Role::mlp_gate_weight, Role::mlp_gate_bias};
  std::optional<Linear> mlp_input;
  std::optional<GatedLinear> gated_input;
  if (spec.gated) {
    gated_input.emplace(linear<GatedLinear>(weights, {input, gate}, index, products));
  } else {
    mlp_input.emplace(linear(weights, {input}, index, products));
  }
  return {attention_norm,
          norm(weights, Role::mlp_norm_weight, Role::mlp_norm_bias, index),
          linear(weights, {{Role::query_weight, Role::query_bias}}, index, products),
          linear(weights, {{Role::key_weight, Role::key_bias}, {Role::value_weight, Role::value_bias}}, index,
                 products),
          linear(weights, {{Role::attention_output_weight, Role::attention_output_bias}}, index, products),
          std::move(mlp_input),
          std::move(gated_input),
          linear(weights, {{Role::mlp_output_weight, Role::mlp_output_bias}}, index, products)};
}

HiddenAttention EncoderModel::make_last_attention(const Weights& weights, int64_t index) const {
  const auto rows_of_role = [&](Role role) {
    return [view = weights.tensor(role, index)](int64_t first, int64_t count, float* rows) {
      view.read(first * view.columns, count * view.columns, rows);
    };
  };
  const std::vector<float> bias =
      weights.has(Role::value_bias, index) ? weights.floats(Role::value_bias, index) : std::vector<float>();
  return HiddenAttention(rows_of_role(Role::key_weight), rows_of_role(Role::value_weight),
                         bias.empty() ? nullptr : bias.data(), spec.hidden_size, spec.num_heads, products, sequence);
}

void EncoderModel::make_rotary(const Weights& weights) {
  const int64_t half = spec.head_size() / 2;
  std::vector<double> thetas;
  for (const AttentionWindow& window : spec.attention) {
    const auto found = std::find(thetas.begin(), thetas.end(), window.rope_theta);
    rotary_of_layer.push_back(static_cast<int>(found - thetas.begin()));
    if (found != thetas.end()) continue;
    thetas.push_back(window.rope_theta);
    std::vector<double> frequencies(half);
    if (weights.has(Role::inverse_frequencies)) {
      const std::vector<float> stored = weights.floats(Role::inverse_frequencies);
      std::copy(stored.begin(), stored.end(), frequencies.begin());
    } else {
      for (int64_t i = 0; i < half; ++i) {
        frequencies[i] = std::pow(window.rope_theta, -2.0 * static_cast<double>(i) / spec.head_size());
      }
    }
    rotary.emplace_back(spec.max_length, frequencies);
  }
}

namespace {

bool has_windows(const ModelSpec& spec) {
  return std::any_of(spec.attention.begin(), spec.attention.end(),
                     [](const AttentionWindow& window) { return window.is_local; });
}

}  // namespace

EncoderModel::EncoderModel(const ModelSpec& model, const Weights& weights, Precision precision, Isa isa)
    : spec(model),
      sequence(sequence_kernels(isa)),
      products(matrix_kernels(precision, isa)),
      // The head sees few rows and its errors are not averaged away by later layers.
      head_products(matrix_kernels(sums_parts(precision) ? precision : Precision::float32, isa)),
      packed_attention(spec.head_size() % kAttentionHeadUnit == 0 ? packed_attention_kernels(precision, isa) : nullptr),
      // Rotary turns and windows are of floats.
      projects_packed(packed_attention != nullptr && spec.position != Position::rotary && !has_windows(spec)) {
  word_embeddings = EmbeddingTable(weights.tensor(Role::word_embeddings));
  if (spec.position == Position::absolute) position_embeddings = weights.floats(Role::position_embeddings);
  if (spec.type_vocab_size > 0) type_embeddings = weights.floats(Role::token_type_embeddings);
  if (spec.embedding_norm) {
    embedding_norm = norm(weights, Role::embedding_norm_weight, Role::embedding_norm_bias);
  }
  if (spec.embedding_projection) {
    embedding_projection.emplace(linear(
        weights, {{Role::embedding_projection_weight, Role::embedding_projection_bias}}, 0, products));
  }
  const int64_t num_distinct = spec.shared_layers ? 1 : spec.num_layers;
  layers.reserve(num_distinct);
  // The first layer's keys and values are shared among rows, a student's are read by every token.
  const bool attends_hidden = spec.position == Position::absolute && spec.norm_placement == NormPlacement::post &&
                              spec.num_layers > 1 && !spec.attention.back().is_local && !spec.is_student();
  for (int64_t i = 0; i < num_distinct; ++i) {
    layers.push_back(make_layer(weights, i));
    if (attends_hidden && i + 1 == num_distinct) last_attention.emplace(make_last_attention(weights, i));
    weights.release();
  }
  if (spec.position == Position::rotary) make_rotary(weights);
  if (spec.final_norm) final_norm = norm(weights, Role::final_norm_weight, Role::final_norm_bias);
  if (spec.is_student()) return;
  head_dense.emplace(linear(weights, {{Role::head_dense_weight, Role::head_dense_bias}}, 0, head_products));
  head_norm = norm(weights, Role::head_norm_weight, Role::head_norm_bias);
}

}  // namespace mlmfast
