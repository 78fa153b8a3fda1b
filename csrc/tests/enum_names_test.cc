// The names engines in Python know a model's tensors and settings by.
#include <set>
#include <string>

#include "check.h"
#include "mlmfast/model_spec.h"
#include "mlmfast/weights.h"

using namespace mlmfast;
using mlmfast::testing::check;

int main() {
  std::set<std::string> names;
  for (int role = 0; role < kNumRoles; ++role) names.insert(role_name(static_cast<Role>(role)));
  check(names.size() == kNumRoles && !names.contains(""), "every role has a name of its own");
  const auto check_name = [](const std::string& found, const std::string& expected) {
    check(found == expected, "a name is " + found + ", expected " + expected);
  };
  check_name(role_name(Role::word_embeddings), "word_embeddings");
  check_name(role_name(Role::key_weight), "key_weight");
  check_name(role_name(Role::student_bias), "student_bias");
  check_name(activation_name(Activation::gelu_tanh), "gelu_tanh");
  check_name(position_name(Position::rotary), "rotary");
  check_name(norm_placement_name(NormPlacement::pre), "pre");
  check_name(head_kind_name(HeadKind::cls_student), "cls_student");

  int num_layer_roles = 0;
  for (int role = 0; role < kNumRoles; ++role) num_layer_roles += is_layer_role(static_cast<Role>(role));
  check(num_layer_roles == 18, "18 roles are of a layer");
  check(!is_layer_role(Role::inverse_frequencies) && !is_layer_role(Role::final_norm_weight),
        "the roles before and after the layers");
  return mlmfast::testing::report("enum_names_test");
}
