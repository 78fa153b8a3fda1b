// The tensors of a checkpoint by the role they play: memory-mapped, checked against a ModelSpec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mlmfast/model_spec.h"

namespace mlmfast {

// Shapes in terms of ModelSpec: V vocab_size, E embedding_size, H hidden_size, I intermediate_size.
// Weights are [outputs, inputs], whatever the checkpoint fuses or shares.
enum class Role {
  word_embeddings,              // [V, E]
  position_embeddings,          // [max_positions, E]
  token_type_embeddings,        // [type_vocab_size, E]
  embedding_norm_weight,        // [E]
  embedding_norm_bias,          // [E]
  embedding_projection_weight,  // [H, E]
  embedding_projection_bias,    // [H]
  inverse_frequencies,          // [head_size / 2] rotary; where stored, they replace those of rope_theta
  // Of a layer.
  attention_norm_weight,    // [H]
  attention_norm_bias,      // [H]
  query_weight,             // [H, H]
  query_bias,               // [H]
  key_weight,               // [H, H]
  key_bias,                 // [H]
  value_weight,             // [H, H]
  value_bias,               // [H]
  attention_output_weight,  // [H, H]
  attention_output_bias,    // [H]
  mlp_norm_weight,          // [H]
  mlp_norm_bias,            // [H]
  mlp_input_weight,         // [I, H]
  mlp_input_bias,           // [I]
  mlp_gate_weight,          // [I, H]
  mlp_gate_bias,            // [I]
  mlp_output_weight,        // [H, I]
  mlp_output_bias,          // [H]
  // After the layers.
  final_norm_weight,  // [H]
  final_norm_bias,    // [H]
  head_dense_weight,  // [E, H]
  head_dense_bias,    // [E]
  head_norm_weight,   // [E]
  head_norm_bias,     // [E]
  decoder_weight,     // [V, E]
  decoder_bias,       // [V]
  student_weight,     // [1, H]
  student_bias,       // [1]
};

constexpr int kNumRoles = static_cast<int>(Role::student_bias) + 1;

// As the enumerator is written.
const char* role_name(Role role);
// Whether each layer has a tensor of its own.
bool is_layer_role(Role role);

enum class DType { f32, f16, bf16 };
// Bytes of a value.
inline int64_t dtype_size(DType dtype) { return dtype == DType::f32 ? 4 : 2; }

const char* dtype_name(DType dtype);
float f16_to_f32(uint16_t bits);
float bf16_to_f32(uint16_t bits);

// A tensor where the file has it, row-major. A vector has one column.
struct WeightView {
  const std::byte* data;  // not necessarily aligned
  DType dtype;
  int64_t rows;
  int64_t columns;
  bool is_matrix = true;

  int64_t size() const { return rows * columns; }
  int64_t num_bytes() const { return size() * dtype_size(dtype); }
  // The rows [begin, end).
  WeightView slice(int64_t begin, int64_t end) const {
    return {data + begin * columns * dtype_size(dtype), dtype, end - begin, columns};
  }
  // Elements [begin, begin + count) as floats.
  void read(int64_t begin, int64_t count, float* floats) const;
};

// The weights of model.safetensors, or of the shards model.safetensors.index.json names: files beside it, or
// ../FOLDER/FILE, a file of a model in a folder beside, of which only the tensors that the index names are
// read. All that a view points to stays mapped as long as this object lives.
class Weights {
 public:
  // Throws ModelError unless every tensor the spec asks for is there, whole, of a known dtype and of the
  // right shape, and none is there that the spec does not know.
  Weights(const std::string& folder, const ModelSpec& spec);
  ~Weights();
  Weights(Weights&&) noexcept;
  Weights& operator=(Weights&&) noexcept;

  // Whether the model has this tensor; biases, norms and the like that its spec leaves out it has not.
  bool has(Role role, int64_t layer = 0) const;

  // layer counts from 0 and is ignored by roles not of a layer. Throws std::out_of_range where has() is
  // false.
  WeightView tensor(Role role, int64_t layer = 0) const;
  std::vector<float> floats(Role role, int64_t layer = 0) const;

  // What has been read takes no memory until it is read again.
  void release() const;

 private:
  struct Content;
  std::unique_ptr<Content> content_;
};

}  // namespace mlmfast
