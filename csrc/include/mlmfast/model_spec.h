// What an encoder computes, read from a model's config.json: plain data, and nothing it cannot say.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "mlmfast/activation.h"

namespace mlmfast {

// A model that cannot be read or trusted; the message says where, what was expected and what came.
class ModelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A configuration that may be sound, but says what a ModelSpec cannot.
class UnsupportedModelError : public ModelError {
 public:
  using ModelError::ModelError;
};

enum class Position { none, absolute, rotary };
enum class NormPlacement { pre, post };

// What stands on the encoder: a vocabulary's distribution, or one value (a distilled model), of each token
// or of the text, read at its first token.
enum class HeadKind { vocabulary, token_student, cls_student };

const char* activation_name(Activation activation);
// As the enumerators are written.
const char* position_name(Position position);
const char* norm_placement_name(NormPlacement placement);
const char* head_kind_name(HeadKind head);

// Of one layer. A global layer sees the whole row; a local one the tokens at most half_window away,
// on both sides, itself included.
struct AttentionWindow {
  bool is_local;
  int64_t half_window;  // of a local layer
  double rope_theta;    // where positions are rotary
};

// In this order, with linear layers x W^T + b and d = head_size():
//   x = word_embeddings[id]; with token_dropout: 0 where id is mask_token_id, then times
//     (1 - 0.15 * 0.8) / (1 - masks in the row / tokens in the row)
//   x += token_type_embeddings[type] if type_vocab_size > 0; += position_embeddings[p] if absolute
//   x = norm(x) if embedding_norm; x = embedding_projection(x) if embedding_projection
//   layers, pre:   x += attention(attention_norm(x)); x += mlp(mlp_norm(x)); layer 0 has no
//                  attention_norm unless first_attention_norm
//           post:  x = attention_norm(x + attention(x)); x = mlp_norm(x + mlp(x))
//     attention: softmax(q k^T / sqrt(d)) v per head, then attention_output; where rotary (Su et al.
//       2021, RoFormer, section 3.2.2), q and k at position p = 0, 1, ... have their pairs (x_i, x_i+d/2)
//       turned first: x_i cos a - x_i+d/2 sin a, x_i+d/2 cos a + x_i sin a, a = p rope_theta^(-2i/d)
//     mlp: mlp_output(act(mlp_input(x))), gated: mlp_output(act(mlp_input(x)) * mlp_gate(x))
//   x = final_norm(x) if final_norm
//   vocabulary head: logits = decoder(head_norm(head_activation(head_dense(x))))
//   student: value = student(x)
struct ModelSpec {
  std::string model_type;

  int64_t vocab_size;
  int64_t embedding_size;  // E: of the embeddings and of the head after its dense layer
  int64_t hidden_size;     // H
  int64_t num_layers;
  int64_t num_heads;
  int64_t intermediate_size;  // I: of the product a gate enters, too
  int64_t type_vocab_size;    // 0: no token types
  int64_t max_positions;      // rows of the position table, or the length trained for where rotary
  int64_t max_length;         // tokens in one row, special tokens included

  Position position;
  int64_t position_offset;   // absolute: the first token's row in the table
  int64_t position_skip_id;  // absolute: a token of this id stands at row position_offset - 1 and is not
                             // counted by those after it; -1: every token counts

  NormPlacement norm_placement;
  double norm_eps;  // of every norm, the head's included
  bool norm_bias;
  bool embedding_norm;
  bool first_attention_norm;
  bool final_norm;

  Activation activation;
  bool gated;
  bool attention_bias;                     // of query, key, value and attention_output
  bool mlp_bias;                           // of mlp_input, mlp_gate and mlp_output
  std::vector<AttentionWindow> attention;  // [num_layers]
  bool shared_layers;                      // every layer has the weights of layer 0

  bool embedding_projection;
  bool token_dropout;
  int64_t mask_token_id;  // of token_dropout

  HeadKind head;
  // Of a vocabulary head.
  Activation head_activation;
  bool head_dense_bias;
  bool decoder_bias;
  bool tied_decoder;  // the decoder may be left out of the checkpoint: it is word_embeddings

  int64_t head_size() const { return hidden_size / num_heads; }
  bool is_student() const { return head != HeadKind::vocabulary; }
  // Of what the head reads at a target after its dense layer; a student has none.
  int64_t feature_size() const { return is_student() ? hidden_size : embedding_size; }
};

// Reads config.json (and model_max_length of tokenizer_config.json) of a model's folder.
// Throws UnsupportedModelError, naming the field and its value, for whatever a ModelSpec cannot say.
ModelSpec read_model_spec(const std::string& folder);

}  // namespace mlmfast
