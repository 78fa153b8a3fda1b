#include "model_families.h"

#include <algorithm>

namespace mlmfast {
namespace {

constexpr TensorName kBertEncoder[] = {
    {Role::word_embeddings, "embeddings.word_embeddings.weight"},
    {Role::position_embeddings, "embeddings.position_embeddings.weight"},
    {Role::token_type_embeddings, "embeddings.token_type_embeddings.weight"},
    {Role::embedding_norm_weight, "embeddings.LayerNorm.weight"},
    {Role::embedding_norm_bias, "embeddings.LayerNorm.bias"},
    {Role::embedding_projection_weight, "embeddings_project.weight"},  // ELECTRA
    {Role::embedding_projection_bias, "embeddings_project.bias"},
    {Role::query_weight, "encoder.layer.*.attention.self.query.weight"},
    {Role::query_bias, "encoder.layer.*.attention.self.query.bias"},
    {Role::key_weight, "encoder.layer.*.attention.self.key.weight"},
    {Role::key_bias, "encoder.layer.*.attention.self.key.bias"},
    {Role::value_weight, "encoder.layer.*.attention.self.value.weight"},
    {Role::value_bias, "encoder.layer.*.attention.self.value.bias"},
    {Role::attention_output_weight, "encoder.layer.*.attention.output.dense.weight"},
    {Role::attention_output_bias, "encoder.layer.*.attention.output.dense.bias"},
    {Role::attention_norm_weight, "encoder.layer.*.attention.output.LayerNorm.weight"},
    {Role::attention_norm_bias, "encoder.layer.*.attention.output.LayerNorm.bias"},
    {Role::mlp_input_weight, "encoder.layer.*.intermediate.dense.weight"},
    {Role::mlp_input_bias, "encoder.layer.*.intermediate.dense.bias"},
    {Role::mlp_output_weight, "encoder.layer.*.output.dense.weight"},
    {Role::mlp_output_bias, "encoder.layer.*.output.dense.bias"},
    {Role::mlp_norm_weight, "encoder.layer.*.output.LayerNorm.weight"},
    {Role::mlp_norm_bias, "encoder.layer.*.output.LayerNorm.bias"},
};

constexpr TensorName kBertHead[] = {
    {Role::head_dense_weight, "cls.predictions.transform.dense.weight"},
    {Role::head_dense_bias, "cls.predictions.transform.dense.bias"},
    {Role::head_norm_weight, "cls.predictions.transform.LayerNorm.weight"},
    {Role::head_norm_bias, "cls.predictions.transform.LayerNorm.bias"},
    {Role::decoder_weight, "cls.predictions.decoder.weight"},
    {Role::decoder_bias, "cls.predictions.bias"},
    {Role::decoder_bias, "cls.predictions.decoder.bias"},
};

constexpr TensorName kRobertaHead[] = {
    {Role::head_dense_weight, "lm_head.dense.weight"},     {Role::head_dense_bias, "lm_head.dense.bias"},
    {Role::head_norm_weight, "lm_head.layer_norm.weight"}, {Role::head_norm_bias, "lm_head.layer_norm.bias"},
    {Role::decoder_weight, "lm_head.decoder.weight"},      {Role::decoder_bias, "lm_head.bias"},
    {Role::decoder_bias, "lm_head.decoder.bias"},
};

constexpr TensorName kElectraHead[] = {
    {Role::head_dense_weight, "generator_predictions.dense.weight"},
    {Role::head_dense_bias, "generator_predictions.dense.bias"},
    {Role::head_norm_weight, "generator_predictions.LayerNorm.weight"},
    {Role::head_norm_bias, "generator_predictions.LayerNorm.bias"},
    {Role::decoder_weight, "generator_lm_head.weight"},
    {Role::decoder_bias, "generator_lm_head.bias"},
};

constexpr TensorName kDistilBertEncoder[] = {
    {Role::word_embeddings, "embeddings.word_embeddings.weight"},
    {Role::position_embeddings, "embeddings.position_embeddings.weight"},
    {Role::embedding_norm_weight, "embeddings.LayerNorm.weight"},
    {Role::embedding_norm_bias, "embeddings.LayerNorm.bias"},
    {Role::query_weight, "transformer.layer.*.attention.q_lin.weight"},
    {Role::query_bias, "transformer.layer.*.attention.q_lin.bias"},
    {Role::key_weight, "transformer.layer.*.attention.k_lin.weight"},
    {Role::key_bias, "transformer.layer.*.attention.k_lin.bias"},
    {Role::value_weight, "transformer.layer.*.attention.v_lin.weight"},
    {Role::value_bias, "transformer.layer.*.attention.v_lin.bias"},
    {Role::attention_output_weight, "transformer.layer.*.attention.out_lin.weight"},
    {Role::attention_output_bias, "transformer.layer.*.attention.out_lin.bias"},
    {Role::attention_norm_weight, "transformer.layer.*.sa_layer_norm.weight"},
    {Role::attention_norm_bias, "transformer.layer.*.sa_layer_norm.bias"},
    {Role::mlp_input_weight, "transformer.layer.*.ffn.lin1.weight"},
    {Role::mlp_input_bias, "transformer.layer.*.ffn.lin1.bias"},
    {Role::mlp_output_weight, "transformer.layer.*.ffn.lin2.weight"},
    {Role::mlp_output_bias, "transformer.layer.*.ffn.lin2.bias"},
    {Role::mlp_norm_weight, "transformer.layer.*.output_layer_norm.weight"},
    {Role::mlp_norm_bias, "transformer.layer.*.output_layer_norm.bias"},
};

constexpr TensorName kDistilBertHead[] = {
    {Role::head_dense_weight, "vocab_transform.weight"}, {Role::head_dense_bias, "vocab_transform.bias"},
    {Role::head_norm_weight, "vocab_layer_norm.weight"}, {Role::head_norm_bias, "vocab_layer_norm.bias"},
    {Role::decoder_weight, "vocab_projector.weight"},    {Role::decoder_bias, "vocab_projector.bias"},
};

// ALBERT's only layer; its groups and inner layers are numbered, but the spec has one of each.
#define ALBERT_LAYER "encoder.albert_layer_groups.0.albert_layers.*."

constexpr TensorName kAlbertEncoder[] = {
    {Role::word_embeddings, "embeddings.word_embeddings.weight"},
    {Role::position_embeddings, "embeddings.position_embeddings.weight"},
    {Role::token_type_embeddings, "embeddings.token_type_embeddings.weight"},
    {Role::embedding_norm_weight, "embeddings.LayerNorm.weight"},
    {Role::embedding_norm_bias, "embeddings.LayerNorm.bias"},
    {Role::embedding_projection_weight, "encoder.embedding_hidden_mapping_in.weight"},
    {Role::embedding_projection_bias, "encoder.embedding_hidden_mapping_in.bias"},
    {Role::query_weight, ALBERT_LAYER "attention.query.weight"},
    {Role::query_bias, ALBERT_LAYER "attention.query.bias"},
    {Role::key_weight, ALBERT_LAYER "attention.key.weight"},
    {Role::key_bias, ALBERT_LAYER "attention.key.bias"},
    {Role::value_weight, ALBERT_LAYER "attention.value.weight"},
    {Role::value_bias, ALBERT_LAYER "attention.value.bias"},
    {Role::attention_output_weight, ALBERT_LAYER "attention.dense.weight"},
    {Role::attention_output_bias, ALBERT_LAYER "attention.dense.bias"},
    {Role::attention_norm_weight, ALBERT_LAYER "attention.LayerNorm.weight"},
    {Role::attention_norm_bias, ALBERT_LAYER "attention.LayerNorm.bias"},
    {Role::mlp_input_weight, ALBERT_LAYER "ffn.weight"},
    {Role::mlp_input_bias, ALBERT_LAYER "ffn.bias"},
    {Role::mlp_output_weight, ALBERT_LAYER "ffn_output.weight"},
    {Role::mlp_output_bias, ALBERT_LAYER "ffn_output.bias"},
    {Role::mlp_norm_weight, ALBERT_LAYER "full_layer_layer_norm.weight"},
    {Role::mlp_norm_bias, ALBERT_LAYER "full_layer_layer_norm.bias"},
};

#undef ALBERT_LAYER

constexpr TensorName kAlbertHead[] = {
    {Role::head_dense_weight, "predictions.dense.weight"},
    {Role::head_dense_bias, "predictions.dense.bias"},
    {Role::head_norm_weight, "predictions.LayerNorm.weight"},
    {Role::head_norm_bias, "predictions.LayerNorm.bias"},
    {Role::decoder_weight, "predictions.decoder.weight"},
    {Role::decoder_bias, "predictions.bias"},
    {Role::decoder_bias, "predictions.decoder.bias"},
};

constexpr TensorName kEsmEncoder[] = {
    {Role::word_embeddings, "embeddings.word_embeddings.weight"},
    {Role::position_embeddings, "embeddings.position_embeddings.weight"},
    {Role::embedding_norm_weight, "embeddings.layer_norm.weight"},
    {Role::embedding_norm_bias, "embeddings.layer_norm.bias"},
    {Role::inverse_frequencies, "rotary_embeddings.inv_freq"},
    {Role::inverse_frequencies, "encoder.layer.0.attention.self.rotary_embeddings.inv_freq"},
    {Role::query_weight, "encoder.layer.*.attention.self.query.weight"},
    {Role::query_bias, "encoder.layer.*.attention.self.query.bias"},
    {Role::key_weight, "encoder.layer.*.attention.self.key.weight"},
    {Role::key_bias, "encoder.layer.*.attention.self.key.bias"},
    {Role::value_weight, "encoder.layer.*.attention.self.value.weight"},
    {Role::value_bias, "encoder.layer.*.attention.self.value.bias"},
    {Role::attention_output_weight, "encoder.layer.*.attention.output.dense.weight"},
    {Role::attention_output_bias, "encoder.layer.*.attention.output.dense.bias"},
    {Role::attention_norm_weight, "encoder.layer.*.attention.LayerNorm.weight"},
    {Role::attention_norm_bias, "encoder.layer.*.attention.LayerNorm.bias"},
    {Role::mlp_input_weight, "encoder.layer.*.intermediate.dense.weight"},
    {Role::mlp_input_bias, "encoder.layer.*.intermediate.dense.bias"},
    {Role::mlp_output_weight, "encoder.layer.*.output.dense.weight"},
    {Role::mlp_output_bias, "encoder.layer.*.output.dense.bias"},
    {Role::mlp_norm_weight, "encoder.layer.*.LayerNorm.weight"},
    {Role::mlp_norm_bias, "encoder.layer.*.LayerNorm.bias"},
    {Role::final_norm_weight, "encoder.emb_layer_norm_after.weight"},
    {Role::final_norm_bias, "encoder.emb_layer_norm_after.bias"},
};

constexpr TensorName kModernBertEncoder[] = {
    {Role::word_embeddings, "embeddings.tok_embeddings.weight"},
    {Role::embedding_norm_weight, "embeddings.norm.weight"},
    {Role::embedding_norm_bias, "embeddings.norm.bias"},
    {Role::query_weight, "layers.*.attn.Wqkv.weight", 0, 3},
    {Role::query_bias, "layers.*.attn.Wqkv.bias", 0, 3},
    {Role::key_weight, "layers.*.attn.Wqkv.weight", 1, 3},
    {Role::key_bias, "layers.*.attn.Wqkv.bias", 1, 3},
    {Role::value_weight, "layers.*.attn.Wqkv.weight", 2, 3},
    {Role::value_bias, "layers.*.attn.Wqkv.bias", 2, 3},
    {Role::attention_output_weight, "layers.*.attn.Wo.weight"},
    {Role::attention_output_bias, "layers.*.attn.Wo.bias"},
    {Role::attention_norm_weight, "layers.*.attn_norm.weight"},
    {Role::attention_norm_bias, "layers.*.attn_norm.bias"},
    {Role::mlp_input_weight, "layers.*.mlp.Wi.weight", 0, 2},
    {Role::mlp_input_bias, "layers.*.mlp.Wi.bias", 0, 2},
    {Role::mlp_gate_weight, "layers.*.mlp.Wi.weight", 1, 2},
    {Role::mlp_gate_bias, "layers.*.mlp.Wi.bias", 1, 2},
    {Role::mlp_output_weight, "layers.*.mlp.Wo.weight"},
    {Role::mlp_output_bias, "layers.*.mlp.Wo.bias"},
    {Role::mlp_norm_weight, "layers.*.mlp_norm.weight"},
    {Role::mlp_norm_bias, "layers.*.mlp_norm.bias"},
    {Role::final_norm_weight, "final_norm.weight"},
    {Role::final_norm_bias, "final_norm.bias"},
};

constexpr TensorName kModernBertHead[] = {
    {Role::head_dense_weight, "head.dense.weight"}, {Role::head_dense_bias, "head.dense.bias"},
    {Role::head_norm_weight, "head.norm.weight"},   {Role::head_norm_bias, "head.norm.bias"},
    {Role::decoder_weight, "decoder.weight"},       {Role::decoder_bias, "decoder.bias"},
};

constexpr TensorName kStudentHead[] = {
    {Role::student_weight, "student.weight"},
    {Role::student_bias, "student.bias"},
};

constexpr FamilyTable kFamilies[] = {
    {"albert", "albert.", kAlbertEncoder, kAlbertHead},
    {"bert", "bert.", kBertEncoder, kBertHead},
    {"camembert", "roberta.", kBertEncoder, kRobertaHead},
    {"distilbert", "distilbert.", kDistilBertEncoder, kDistilBertHead},
    {"electra", "electra.", kBertEncoder, kElectraHead},
    {"esm", "esm.", kEsmEncoder, kRobertaHead},
    {"modernbert", "model.", kModernBertEncoder, kModernBertHead},
    {"roberta", "roberta.", kBertEncoder, kRobertaHead},
    {"xlm-roberta", "roberta.", kBertEncoder, kRobertaHead},
};

}  // namespace

std::span<const TensorName> student_head() { return kStudentHead; }

const FamilyTable* find_family(std::string_view model_type) {
  const auto* found =
      std::find_if(std::begin(kFamilies), std::end(kFamilies),
                   [&](const FamilyTable& family) { return family.model_type == model_type; });
  return found == std::end(kFamilies) ? nullptr : found;
}

std::string family_names() {
  std::string names;
  for (const FamilyTable& family : kFamilies) {
    names += (names.empty() ? "" : ", ") + std::string(family.model_type);
  }
  return names;
}

}  // namespace mlmfast
