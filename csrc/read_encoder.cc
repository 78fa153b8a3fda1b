#include "read_encoder.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "mlmfast/model_spec.h"
#include "mlmfast/weights.h"

namespace py = pybind11;

namespace mlmfast {
namespace {

py::list attention_windows(const ModelSpec& spec) {
  py::list windows;
  for (const AttentionWindow& window : spec.attention) {
    windows.append(py::dict(py::arg("is_local") = window.is_local, py::arg("half_window") = window.half_window,
                            py::arg("rope_theta") = window.rope_theta));
  }
  return windows;
}

py::dict spec_fields(const ModelSpec& spec) {
  py::dict fields;
#define FIELD(name) fields[#name] = spec.name
  FIELD(model_type);
  FIELD(vocab_size);
  FIELD(embedding_size);
  FIELD(hidden_size);
  FIELD(num_layers);
  FIELD(num_heads);
  FIELD(intermediate_size);
  FIELD(type_vocab_size);
  FIELD(max_positions);
  FIELD(max_length);
  fields["position"] = position_name(spec.position);
  FIELD(position_offset);
  FIELD(position_skip_id);
  fields["norm_placement"] = norm_placement_name(spec.norm_placement);
  FIELD(norm_eps);
  FIELD(norm_bias);
  FIELD(embedding_norm);
  FIELD(first_attention_norm);
  FIELD(final_norm);
  fields["activation"] = activation_name(spec.activation);
  FIELD(gated);
  FIELD(attention_bias);
  FIELD(mlp_bias);
  fields["attention"] = attention_windows(spec);
  FIELD(shared_layers);
  FIELD(embedding_projection);
  FIELD(token_dropout);
  FIELD(mask_token_id);
  fields["head"] = head_kind_name(spec.head);
  fields["head_activation"] = activation_name(spec.head_activation);
  FIELD(head_dense_bias);
  FIELD(decoder_bias);
  FIELD(tied_decoder);
#undef FIELD
  return fields;
}

py::dtype stored_dtype(DType dtype) {
  switch (dtype) {
    case DType::f32: return py::dtype("float32");
    case DType::f16: return py::dtype("float16");
    default: return py::dtype("uint16");
  }
}

py::array copy_of(const WeightView& view) {
  std::vector<py::ssize_t> shape = {view.rows};
  if (view.is_matrix) shape.push_back(view.columns);
  py::array array(stored_dtype(view.dtype), shape);
  std::memcpy(array.mutable_data(), view.data, view.num_bytes());
  return array;
}

Weights open_weights(const std::string& folder, const ModelSpec& spec) {
  py::gil_scoped_release release;
  return Weights(folder, spec);
}

}  // namespace

py::dict read_encoder(const std::string& folder) {
  const ModelSpec spec = read_model_spec(folder);
  const Weights weights = open_weights(folder, spec);
  std::map<const std::byte*, py::tuple> copies;  // by where the file has the tensor
  py::dict tensors;
  for (int number = 0; number < kNumRoles; ++number) {
    const Role role = static_cast<Role>(number);
    const int64_t num_layers = is_layer_role(role) && !spec.shared_layers ? spec.num_layers : 1;
    py::list layers;
    bool is_there = false;
    for (int64_t layer = 0; layer < num_layers; ++layer) {
      if (!weights.has(role, layer)) {
        layers.append(py::none());
        continue;
      }
      is_there = true;
      const WeightView view = weights.tensor(role, layer);
      const auto [copy, is_new] = copies.try_emplace(view.data);
      if (is_new) copy->second = py::make_tuple(copy_of(view), dtype_name(view.dtype));
      layers.append(copy->second);
    }
    if (is_there) tensors[role_name(role)] = layers;
    weights.release();
  }
  py::dict encoder;
  encoder["spec"] = spec_fields(spec);
  encoder["tensors"] = tensors;
  return encoder;
}

}  // namespace mlmfast
