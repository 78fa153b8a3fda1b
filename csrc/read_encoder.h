// A model's folder as Python objects, for engines that compute elsewhere.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

namespace mlmfast {

// {"spec": the fields of ModelSpec, enums by name, "tensors": {role: a list over layers (one for a role not
// of a layer, or for layers that are shared) of (array, dtype name), None where only other layers have it}}.
// Arrays are copies in the dtype of the checkpoint, bfloat16 as uint16; a tied decoder is the array of the
// embeddings. Throws as read_model_spec and Weights do.
pybind11::dict read_encoder(const std::string& folder);

}  // namespace mlmfast
