// The names of enumerators, as they are written.
#include "mlmfast/model_spec.h"
#include "mlmfast/weights.h"

#define NAME(type, value) \
  case type::value: return #value;

namespace mlmfast {

const char* activation_name(Activation activation) {
  switch (activation) {
    NAME(Activation, none)
    NAME(Activation, gelu)
    NAME(Activation, gelu_tanh)
    NAME(Activation, relu)
    NAME(Activation, silu)
  }
  return "";
}

const char* position_name(Position position) {
  switch (position) {
    NAME(Position, none)
    NAME(Position, absolute)
    NAME(Position, rotary)
  }
  return "";
}

const char* norm_placement_name(NormPlacement placement) {
  switch (placement) {
    NAME(NormPlacement, pre)
    NAME(NormPlacement, post)
  }
  return "";
}

const char* head_kind_name(HeadKind head) {
  switch (head) {
    NAME(HeadKind, vocabulary)
    NAME(HeadKind, token_student)
    NAME(HeadKind, cls_student)
  }
  return "";
}

const char* role_name(Role role) {
  switch (role) {
    NAME(Role, word_embeddings)
    NAME(Role, position_embeddings)
    NAME(Role, token_type_embeddings)
    NAME(Role, embedding_norm_weight)
    NAME(Role, embedding_norm_bias)
    NAME(Role, embedding_projection_weight)
    NAME(Role, embedding_projection_bias)
    NAME(Role, inverse_frequencies)
    NAME(Role, attention_norm_weight)
    NAME(Role, attention_norm_bias)
    NAME(Role, query_weight)
    NAME(Role, query_bias)
    NAME(Role, key_weight)
    NAME(Role, key_bias)
    NAME(Role, value_weight)
    NAME(Role, value_bias)
    NAME(Role, attention_output_weight)
    NAME(Role, attention_output_bias)
    NAME(Role, mlp_norm_weight)
    NAME(Role, mlp_norm_bias)
    NAME(Role, mlp_input_weight)
    NAME(Role, mlp_input_bias)
    NAME(Role, mlp_gate_weight)
    NAME(Role, mlp_gate_bias)
    NAME(Role, mlp_output_weight)
    NAME(Role, mlp_output_bias)
    NAME(Role, final_norm_weight)
    NAME(Role, final_norm_bias)
    NAME(Role, head_dense_weight)
    NAME(Role, head_dense_bias)
    NAME(Role, head_norm_weight)
    NAME(Role, head_norm_bias)
    NAME(Role, decoder_weight)
    NAME(Role, decoder_bias)
    NAME(Role, student_weight)
    NAME(Role, student_bias)
  }
  return "";
}

}  // namespace mlmfast
