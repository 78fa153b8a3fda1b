// The table of model families: where a checkpoint keeps each role's tensor.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "mlmfast/weights.h"

namespace mlmfast {

// '*' stands for the layer's number. Where one tensor fuses several roles along its rows, part says
// which of num_parts equal ones it is.
struct TensorName {
  Role role;
  std::string_view name;
  int part = 0;
  int num_parts = 1;
};

// Tensors of the encoder are published with and without the prefix, norms as weight and bias or gamma
// and beta. A role listed twice is published under either name.
struct FamilyTable {
  std::string_view model_type;
  std::string_view prefix;
  std::span<const TensorName> encoder;
  std::span<const TensorName> head;
};

// Of the students of any family.
std::span<const TensorName> student_head();

// Null for a model type that is not listed.
const FamilyTable* find_family(std::string_view model_type);

// "albert, bert, ...", for messages.
std::string family_names();

}  // namespace mlmfast
