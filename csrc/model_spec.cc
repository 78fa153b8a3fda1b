#include "mlmfast/model_spec.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "json_file.h"
#include "model_families.h"

namespace mlmfast {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 30;
constexpr int64_t kMaxPositions = int64_t{1} << 20;
constexpr int64_t kMaxLayers = 1024;

// An object of config.json, read field by field; a field that is null is one left out.
class Config {
 public:
  Config(std::string path, Json values) : path_(std::move(path)), values_(std::move(values)) {}

  [[noreturn]] void refuse(std::string_view key, const std::string& expected) const {
    const Json* found = values_.find(key);
    throw UnsupportedModelError(path_ + ": " + std::string(key) +
                     (found == nullptr ? " is missing" : " = " + json_text(*found)) + "; expected " +
                     expected);
  }

  const Json* find(std::string_view key) const {
    const Json* found = values_.find(key);
    return found == nullptr || found->is_null() ? nullptr : found;
  }

  // From least up to most.
  int64_t integer(std::string_view key, int64_t least, int64_t most) const {
    const Json* found = find(key);
    const int64_t* value = found == nullptr ? nullptr : found->as<int64_t>();
    if (value == nullptr || *value < least || *value > most) {
      refuse(key, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return *value;
  }

  int64_t size(std::string_view key) const { return integer(key, 1, kMaxSize); }
  int64_t size(std::string_view key, int64_t otherwise) const {
    return find(key) == nullptr ? otherwise : size(key);
  }

  bool flag(std::string_view key, bool otherwise) const {
    const Json* found = find(key);
    if (found == nullptr) return otherwise;
    if (found->as<bool>() == nullptr) refuse(key, "true or false");
    return *found->as<bool>();
  }

  double positive(std::string_view key, double otherwise) const {
    const Json* found = find(key);
    if (found == nullptr) return otherwise;
    const double* number = found->as<double>();
    const int64_t* whole = found->as<int64_t>();
    const double value = number != nullptr ? *number : whole != nullptr ? static_cast<double>(*whole) : 0;
    if (!(value > 0)) refuse(key, "a number above 0");
    return value;
  }

  std::string text(std::string_view key, const char* otherwise) const {
    const Json* found = find(key);
    if (found == nullptr) return otherwise;
    if (found->as<std::string>() == nullptr) refuse(key, "a string");
    return *found->as<std::string>();
  }

  Activation activation(std::string_view key, const char* otherwise) const {
    const std::string name = text(key, otherwise);
    const auto is_one_of = [&](std::initializer_list<const char*> names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    if (is_one_of({"gelu", "gelu_python"})) return Activation::gelu;
    if (is_one_of({"gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh", "gelu_python_tanh"})) {
      return Activation::gelu_tanh;
    }
    if (name == "relu") return Activation::relu;
    if (is_one_of({"silu", "swish"})) return Activation::silu;
    refuse(key, "gelu, gelu_new, relu or silu");
  }

  // The object in a field, its own fields named key.field in messages.
  Config object(std::string_view key) const {
    const Json* found = find(key);
    if (found == nullptr) return {path_ + ": " + std::string(key), Json{Json::Object{}}};
    if (found->as<Json::Object>() == nullptr) refuse(key, "an object");
    return {path_ + ": " + std::string(key), *found};
  }

  void require_one_of(std::string_view key, const char* otherwise,
                      std::initializer_list<std::string_view> names) const {
    const std::string name = text(key, otherwise);
    if (std::find(names.begin(), names.end(), name) != names.end()) return;
    std::string expected;
    for (std::string_view possible : names) {
      expected += (expected.empty() ? "" : " or ") + std::string(possible);
    }
    refuse(key, expected);
  }

 private:
  std::string path_;
  Json values_;
};

bool is_unset(const Json& json) {
  const bool* flag = json.as<bool>();
  const int64_t* whole = json.as<int64_t>();
  const double* number = json.as<double>();
  return (flag != nullptr && !*flag) || (whole != nullptr && *whole == 0) ||
         (number != nullptr && *number == 0);
}

// Fields that change what a family computes in ways no ModelSpec says.
void refuse_unsupported(const Config& config) {
  for (std::string_view key : {"final_logit_softcapping", "attn_logit_softcapping", "logit_scale",
                               "logits_scaling", "logits_soft_cap", "sliding_window", "rope_scaling",
                               "quantization_config", "add_cross_attention", "is_folding_model"}) {
    const Json* found = config.find(key);
    if (found != nullptr && !is_unset(*found)) {
      config.refuse(key, "it unset: the engine does not carry it out, and scores would be wrong");
    }
  }
}

// The head that the first of config's architectures names.
HeadKind read_head(const Config& config) {
  if (config.flag("is_decoder", false)) config.refuse("is_decoder", "a masked language model");
  const Json* found = config.find("architectures");
  const Json::Array* names = found == nullptr ? nullptr : found->as<Json::Array>();
  if (names == nullptr || names->empty()) return HeadKind::vocabulary;
  const std::string* name = names->front().as<std::string>();
  if (name == nullptr) config.refuse("architectures", "a list of names");
  if (name->ends_with("ForCausalLM") || name->ends_with("LMHeadModel")) {
    config.refuse("architectures", "a masked language model");
  }
  if (*name != "MlmfastStudent") return HeadKind::vocabulary;
  const Config student = config.object("mlmfast_student");
  student.require_one_of("head", "", {"token", "cls"});
  return student.text("head", "") == "token" ? HeadKind::token_student : HeadKind::cls_student;
}

struct SizeFields {
  const char* hidden_size = "hidden_size";
  const char* num_layers = "num_hidden_layers";
  const char* num_heads = "num_attention_heads";
  const char* intermediate_size = "intermediate_size";
};

// Sizes, and beside them what BERT does.
ModelSpec read_common(const Config& config, const SizeFields& fields = {}) {
  ModelSpec spec{};
  spec.vocab_size = config.size("vocab_size");
  spec.hidden_size = spec.embedding_size = config.size(fields.hidden_size);
  spec.num_layers = config.integer(fields.num_layers, 1, kMaxLayers);
  spec.num_heads = config.size(fields.num_heads);
  spec.intermediate_size = config.size(fields.intermediate_size);
  if (spec.hidden_size % spec.num_heads != 0) {
    config.refuse(fields.num_heads, "a divisor of the hidden size, " + std::to_string(spec.hidden_size));
  }
  if (config.size("head_dim", spec.head_size()) != spec.head_size()) {
    config.refuse("head_dim", std::to_string(spec.head_size()));
  }
  spec.max_positions = spec.max_length = config.integer("max_position_embeddings", 1, kMaxPositions);
  spec.position = Position::absolute;
  spec.position_skip_id = -1;
  spec.norm_placement = NormPlacement::post;
  spec.norm_bias = true;
  spec.embedding_norm = true;
  spec.first_attention_norm = true;
  spec.attention_bias = true;
  spec.mlp_bias = true;
  spec.attention.assign(spec.num_layers, {});
  spec.mask_token_id = -1;
  spec.head_activation = Activation::gelu;
  spec.head_dense_bias = true;
  spec.decoder_bias = true;
  return spec;
}

ModelSpec read_bert(const Config& config) {
  config.require_one_of("position_embedding_type", "absolute", {"absolute"});
  ModelSpec spec = read_common(config);
  spec.type_vocab_size = config.size("type_vocab_size", 2);
  spec.norm_eps = config.positive("layer_norm_eps", 1e-12);
  spec.activation = spec.head_activation = config.activation("hidden_act", "gelu");
  return spec;
}

// Positions count from pad_token_id + 1, padding left out.
void offset_positions(const Config& config, int64_t pad_token_id, ModelSpec& spec) {
  spec.position_skip_id = pad_token_id;
  spec.position_offset = pad_token_id + 1;
  spec.max_length = spec.max_positions - spec.position_offset;
  if (spec.max_length < 1) {
    config.refuse("max_position_embeddings",
                  "more than pad_token_id + 1 = " + std::to_string(spec.position_offset));
  }
}

int64_t read_token_id(const Config& config, std::string_view key, const ModelSpec& spec) {
  return config.integer(key, 0, spec.vocab_size - 1);
}

ModelSpec read_roberta(const Config& config) {
  ModelSpec spec = read_bert(config);
  spec.head_activation = Activation::gelu;
  const int64_t pad =
      config.find("pad_token_id") == nullptr ? 1 : read_token_id(config, "pad_token_id", spec);
  offset_positions(config, pad, spec);
  return spec;
}

ModelSpec read_electra(const Config& config) {
  ModelSpec spec = read_bert(config);
  spec.head_activation = Activation::gelu;
  spec.embedding_size = config.size("embedding_size", 128);
  spec.embedding_projection = spec.embedding_size != spec.hidden_size;
  return spec;
}

ModelSpec read_albert(const Config& config) {
  ModelSpec spec = read_bert(config);
  spec.activation = spec.head_activation = config.activation("hidden_act", "gelu_new");
  spec.embedding_size = config.size("embedding_size", 128);
  spec.embedding_projection = true;
  spec.shared_layers = true;
  for (std::string_view key : {"num_hidden_groups", "inner_group_num"}) {
    if (config.size(key, 1) != 1) config.refuse(key, "1");
  }
  return spec;
}

ModelSpec read_distilbert(const Config& config) {
  ModelSpec spec = read_common(config, {"dim", "n_layers", "n_heads", "hidden_dim"});
  spec.norm_eps = 1e-12;
  spec.activation = spec.head_activation = config.activation("activation", "gelu");
  return spec;
}

void use_rotary_positions(const Config& config, ModelSpec& spec) {
  if (spec.head_size() % 2 != 0) {
    config.refuse("num_attention_heads",
                  "heads of an even size for rotary positions, not " + std::to_string(spec.head_size()));
  }
  spec.position = Position::rotary;
  spec.position_offset = 0;
  spec.position_skip_id = -1;
}

ModelSpec read_esm(const Config& config) {
  config.require_one_of("position_embedding_type", "absolute", {"absolute", "rotary"});
  ModelSpec spec = read_common(config);
  spec.norm_placement = NormPlacement::pre;
  spec.norm_eps = config.positive("layer_norm_eps", 1e-12);
  spec.embedding_norm = config.flag("emb_layer_norm_before", false);
  spec.final_norm = true;
  spec.activation = Activation::gelu;  // whatever hidden_act says
  offset_positions(config, read_token_id(config, "pad_token_id", spec), spec);
  if (config.text("position_embedding_type", "absolute") == "rotary") {
    use_rotary_positions(config, spec);
    const double theta = config.positive("rope_theta", 10000);
    for (AttentionWindow& window : spec.attention) window.rope_theta = theta;
  }
  spec.token_dropout = config.flag("token_dropout", false);
  if (spec.token_dropout) spec.mask_token_id = read_token_id(config, "mask_token_id", spec);
  return spec;
}

double read_rope_theta(const Config& config, std::string_view layer_type, std::string_view old_key,
                       double otherwise) {
  const Config parameters = config.object("rope_parameters").object(layer_type);
  for (std::string_view key : {"rope_type", "type"}) parameters.require_one_of(key, "default", {"default"});
  if (parameters.positive("partial_rotary_factor", 1) != 1) parameters.refuse("partial_rotary_factor", "1");
  return parameters.positive("rope_theta", config.positive(old_key, otherwise));
}

// Of each layer, whether it sees only its neighbours.
std::vector<bool> read_local_layers(const Config& config, int64_t num_layers) {
  std::vector<bool> is_local(num_layers);
  const Json* types = config.find("layer_types");
  if (types == nullptr) {
    const int64_t every = config.size("global_attn_every_n_layers", 3);
    for (int64_t i = 0; i < num_layers; ++i) is_local[i] = i % every != 0;
    return is_local;
  }
  const Json::Array* names = types->as<Json::Array>();
  const auto fail = [&] {
    config.refuse("layer_types", "full_attention or sliding_attention for each of the " +
                                     std::to_string(num_layers) + " layers");
  };
  if (names == nullptr || static_cast<int64_t>(names->size()) != num_layers) fail();
  for (int64_t i = 0; i < num_layers; ++i) {
    const std::string* name = (*names)[i].as<std::string>();
    if (name == nullptr || (*name != "full_attention" && *name != "sliding_attention")) fail();
    is_local[i] = *name == "sliding_attention";
  }
  return is_local;
}

ModelSpec read_modernbert(const Config& config) {
  ModelSpec spec = read_common(config);
  use_rotary_positions(config, spec);
  spec.norm_placement = NormPlacement::pre;
  spec.norm_eps = config.positive("norm_eps", 1e-5);
  spec.norm_bias = config.flag("norm_bias", false);
  spec.first_attention_norm = false;
  spec.final_norm = true;
  spec.activation = config.activation("hidden_activation", "gelu");
  spec.gated = true;
  spec.attention_bias = config.flag("attention_bias", false);
  spec.mlp_bias = config.flag("mlp_bias", false);
  spec.head_activation = config.activation("classifier_activation", "gelu");
  spec.head_dense_bias = config.flag("classifier_bias", false);
  spec.decoder_bias = config.flag("decoder_bias", true);

  const double global_theta = read_rope_theta(config, "full_attention", "global_rope_theta", 160000);
  const double local_theta = read_rope_theta(config, "sliding_attention", "local_rope_theta", 10000);
  const int64_t half_window = config.size("local_attention", 128) / 2;
  const std::vector<bool> is_local = read_local_layers(config, spec.num_layers);
  for (int64_t i = 0; i < spec.num_layers; ++i) {
    spec.attention[i] = is_local[i] ? AttentionWindow{true, half_window, local_theta}
                                    : AttentionWindow{false, 0, global_theta};
  }
  return spec;
}

ModelSpec read_family(const std::string& model_type, const Config& config) {
  if (model_type == "bert") return read_bert(config);
  if (model_type == "electra") return read_electra(config);
  if (model_type == "albert") return read_albert(config);
  if (model_type == "distilbert") return read_distilbert(config);
  if (model_type == "esm") return read_esm(config);
  if (model_type == "modernbert") return read_modernbert(config);
  return read_roberta(config);
}

// What the folder's tokenizer_config.json states, if it does.
std::optional<int64_t> read_stated_length(const std::string& folder) {
  const std::string path = folder + "/tokenizer_config.json";
  if (!std::filesystem::exists(path)) return {};
  const Json values = read_json_object(path);
  const Json* found = values.find("model_max_length");
  if (found == nullptr) return {};
  double stated = 0;
  if (const int64_t* whole = found->as<int64_t>()) stated = static_cast<double>(*whole);
  if (const double* number = found->as<double>()) stated = *number;
  // Tokenizers without a limit state 1e30.
  if (stated < 1 || stated > static_cast<double>(kMaxPositions)) return {};
  return static_cast<int64_t>(stated);
}

}  // namespace

ModelSpec read_model_spec(const std::string& folder) {
  const std::string path = folder + "/config.json";
  if (!std::filesystem::exists(path)) {
    throw ModelError(folder + ": no config.json; expected a model's folder with config.json and weights");
  }
  const Config config(path, read_json_object(path));
  const std::string model_type = config.text("model_type", "");
  if (find_family(model_type) == nullptr) config.refuse("model_type", "one of " + family_names());
  refuse_unsupported(config);
  const HeadKind head = read_head(config);
  ModelSpec spec = read_family(model_type, config);
  spec.model_type = model_type;
  spec.head = head;
  spec.tied_decoder = config.flag("tie_word_embeddings", true);
  spec.max_length = std::min(spec.max_length, read_stated_length(folder).value_or(spec.max_length));
  return spec;
}

}  // namespace mlmfast
