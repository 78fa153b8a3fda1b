#include "mlmfast/weights.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "json.h"
#include "model_families.h"
#include "safetensors.h"

namespace mlmfast {
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kPickles[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};

// Parts of a checkpoint that no language-model score depends on.
constexpr std::string_view kUnused[] = {
    "pooler.",
    "seq_relationship.",
    "contact_head.",
    "position_ids",
    "inv_freq",
    "embeddings.position_embeddings.weight",  // beside rotary positions
};

using Tensors = std::map<std::string, StoredTensor>;

struct Shape {
  int64_t rows;
  int64_t columns;
  bool is_matrix;
};

Shape matrix(int64_t rows, int64_t columns) { return {rows, columns, true}; }
Shape vector(int64_t size) { return {size, 1, false}; }

// Nothing where the spec has no such tensor.
std::optional<Shape> expected_shape(const ModelSpec& spec, Role role, int64_t layer) {
  const int64_t embedding = spec.embedding_size, hidden = spec.hidden_size, inner = spec.intermediate_size;
  const auto if_true = [](bool condition, Shape shape) {
    return condition ? std::optional<Shape>(shape) : std::nullopt;
  };
  const bool attention_norm = layer > 0 || spec.first_attention_norm;
  const bool vocabulary = !spec.is_student();
  switch (role) {
    case Role::word_embeddings: return matrix(spec.vocab_size, embedding);
    case Role::position_embeddings:
      return if_true(spec.position == Position::absolute, matrix(spec.max_positions, embedding));
    case Role::token_type_embeddings:
      return if_true(spec.type_vocab_size > 0, matrix(spec.type_vocab_size, embedding));
    case Role::embedding_norm_weight: return if_true(spec.embedding_norm, vector(embedding));
    case Role::embedding_norm_bias: return if_true(spec.embedding_norm && spec.norm_bias, vector(embedding));
    case Role::embedding_projection_weight:
      return if_true(spec.embedding_projection, matrix(hidden, embedding));
    case Role::embedding_projection_bias: return if_true(spec.embedding_projection, vector(hidden));
    case Role::inverse_frequencies:
      return if_true(spec.position == Position::rotary, vector(spec.head_size() / 2));
    case Role::attention_norm_weight: return if_true(attention_norm, vector(hidden));
    case Role::attention_norm_bias: return if_true(attention_norm && spec.norm_bias, vector(hidden));
    case Role::query_weight:
    case Role::key_weight:
    case Role::value_weight:
    case Role::attention_output_weight: return matrix(hidden, hidden);
    case Role::query_bias:
    case Role::key_bias:
    case Role::value_bias:
    case Role::attention_output_bias: return if_true(spec.attention_bias, vector(hidden));
    case Role::mlp_norm_weight: return vector(hidden);
    case Role::mlp_norm_bias: return if_true(spec.norm_bias, vector(hidden));
    case Role::mlp_input_weight: return matrix(inner, hidden);
    case Role::mlp_input_bias: return if_true(spec.mlp_bias, vector(inner));
    case Role::mlp_gate_weight: return if_true(spec.gated, matrix(inner, hidden));
    case Role::mlp_gate_bias: return if_true(spec.gated && spec.mlp_bias, vector(inner));
    case Role::mlp_output_weight: return matrix(hidden, inner);
    case Role::mlp_output_bias: return if_true(spec.mlp_bias, vector(hidden));
    case Role::final_norm_weight: return if_true(spec.final_norm, vector(hidden));
    case Role::final_norm_bias: return if_true(spec.final_norm && spec.norm_bias, vector(hidden));
    case Role::head_dense_weight: return if_true(vocabulary, matrix(embedding, hidden));
    case Role::head_dense_bias: return if_true(vocabulary && spec.head_dense_bias, vector(embedding));
    case Role::head_norm_weight: return if_true(vocabulary, vector(embedding));
    case Role::head_norm_bias: return if_true(vocabulary && spec.norm_bias, vector(embedding));
    case Role::decoder_weight: return if_true(vocabulary, matrix(spec.vocab_size, embedding));
    case Role::decoder_bias: return if_true(vocabulary && spec.decoder_bias, vector(spec.vocab_size));
    case Role::student_weight: return if_true(!vocabulary, matrix(1, hidden));
    case Role::student_bias: return if_true(!vocabulary, vector(1));
  }
  return {};
}

std::optional<DType> dtype_from_name(std::string_view name) {
  if (name == "F32") return DType::f32;
  if (name == "F16") return DType::f16;
  if (name == "BF16") return DType::bf16;
  return {};
}


std::string in_layer(std::string_view name, int64_t layer) {
  const size_t star = name.find('*');
  if (star == std::string_view::npos) return std::string(name);
  return std::string(name.substr(0, star)) + std::to_string(layer) + std::string(name.substr(star + 1));
}

// The name of a norm's tensor in the time of TensorFlow checkpoints; empty for other tensors.
std::string legacy_norm_name(const std::string& name) {
  for (const auto& [modern, legacy] :
       {std::pair{"LayerNorm.weight", "LayerNorm.gamma"}, std::pair{"LayerNorm.bias", "LayerNorm.beta"}}) {
    if (name.ends_with(modern)) return name.substr(0, name.size() - std::strlen(modern)) + legacy;
  }
  return {};
}

std::string list_some(const std::vector<std::string>& names) {
  constexpr size_t kShown = 4;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > kShown) text += " and " + std::to_string(names.size() - kShown) + " more";
  return text;
}

std::string shape_text(const Shape& shape, int num_parts) {
  const std::string rows = std::to_string(shape.rows * num_parts);
  return "[" + rows + (shape.is_matrix ? ", " + std::to_string(shape.columns) : "") + "]";
}

// Finds the tensor of each role among those stored.
class Binder {
 public:
  Binder(const std::string& folder, const Tensors& tensors, const ModelSpec& spec)
      : folder_(folder), tensors_(tensors), spec_(spec), family_(*find_family(spec.model_type)) {}

  std::map<std::pair<Role, int64_t>, WeightView> bind() {
    bind_all(family_.encoder, family_.prefix);
    bind_all(head(), "");
    if (!missing_.empty()) {
      const bool student = spec_.is_student();
      throw ModelError(folder_ + ": the checkpoint has not all of a " + spec_.model_type +
                       (student ? " student: " : " masked language model: ") + list_some(missing_) +
                       " not among its " + std::to_string(tensors_.size()) + " tensors" +
                       (student ? "" : "; scoring needs the weights published for pre-training or fill-mask"));
    }
    refuse_unknown();
    return std::move(views_);
  }

 private:
  std::span<const TensorName> head() const { return spec_.is_student() ? student_head() : family_.head; }

  void bind_all(std::span<const TensorName> names, std::string_view prefix) {
    for (const TensorName& first : names) {
      const int64_t num_layers = is_layer_role(first.role) && !spec_.shared_layers ? spec_.num_layers : 1;
      for (int64_t layer = 0; layer < num_layers; ++layer) {
        const std::optional<Shape> shape = expected_shape(spec_, first.role, layer);
        if (shape && !views_.contains({first.role, layer})) bind_one(names, prefix, first, layer, *shape);
      }
    }
  }

  void bind_one(std::span<const TensorName> names, std::string_view prefix, const TensorName& first,
                int64_t layer, const Shape& shape) {
    const std::pair<Role, int64_t> place(first.role, layer);
    const std::string* found = nullptr;
    for (const TensorName& name : names) {
      if (name.role == first.role)
        found = find_one(std::string(prefix) + in_layer(name.name, layer), prefix, found);
    }
    if (found != nullptr) {
      views_.emplace(place, view(*found, first, shape));
    } else if (first.role == Role::decoder_weight && spec_.tied_decoder) {
      const auto embeddings = views_.find({Role::word_embeddings, 0});
      if (embeddings != views_.end()) views_.emplace(place, embeddings->second);
    } else if (first.role != Role::inverse_frequencies) {
      missing_.push_back(std::string(prefix) + in_layer(first.name, layer));
    }
  }

  // The stored name of a tensor that is published as `name`, without its prefix, or as a legacy norm;
  // found: the one an alias led to. All that are there must be the same tensor.
  const std::string* find_one(const std::string& name, std::string_view prefix, const std::string* found) {
    const std::string bare = name.substr(prefix.size());
    for (const std::string& candidate : {name, bare, legacy_norm_name(name), legacy_norm_name(bare)}) {
      const auto it = tensors_.find(candidate);
      if (candidate.empty() || it == tensors_.end() || &it->first == found) continue;
      if (found != nullptr && !(tensors_.at(*found) == it->second)) {
        throw ModelError(folder_ + ": the checkpoint stores one tensor twice, as " + *found + " and " +
                         candidate + ", and the two differ; which one its scores need cannot be known");
      }
      bound_.insert(candidate);
      if (found == nullptr) found = &it->first;
    }
    return found;
  }

  WeightView view(const std::string& name, const TensorName& role, const Shape& shape) const {
    const StoredTensor& tensor = tensors_.at(name);
    const std::optional<DType> dtype = dtype_from_name(tensor.dtype);
    if (!dtype) {
      throw ModelError(folder_ + ": tensor " + name + " is " + tensor_text(tensor) +
                       "; expected F32, F16 or BF16");
    }
    const int64_t stored_rows = shape.rows * role.num_parts;
    const std::vector<int64_t> expected =
        shape.is_matrix ? std::vector{stored_rows, shape.columns} : std::vector{stored_rows};
    if (tensor.shape != expected) {
      throw ModelError(folder_ + ": tensor " + name + " is " + tensor_text(tensor) +
                       "; config.json asks for " + shape_text(shape, role.num_parts));
    }
    const int64_t offset = role.part * shape.rows * shape.columns * dtype_size(*dtype);
    return {tensor.data + offset, *dtype, shape.rows, shape.columns, shape.is_matrix};
  }

  // A tensor of the parts this engine computes that its spec says nothing of would change the scores.
  void refuse_unknown() const {
    std::set<std::string_view> parts;
    for (const auto& names : {family_.encoder, family_.head, head()}) {
      for (const TensorName& name : names) parts.insert(first_part(name.name));
    }
    std::vector<std::string> unknown;
    for (const auto& [name, tensor] : tensors_) {
      const bool has_prefix = name.starts_with(family_.prefix);
      const std::string_view bare = std::string_view(name).substr(has_prefix ? family_.prefix.size() : 0);
      const bool is_unused = std::any_of(std::begin(kUnused), std::end(kUnused), [&](std::string_view part) {
        return bare.find(part) != std::string_view::npos;
      });
      if (parts.contains(first_part(bare)) && !is_unused && !bound_.contains(name)) unknown.push_back(name);
    }
    if (!unknown.empty()) {
      throw ModelError(folder_ + ": the checkpoint holds tensors that a " + spec_.model_type +
                       " model of its config.json does not have: " + list_some(unknown));
    }
  }

  static std::string_view first_part(std::string_view name) { return name.substr(0, name.find('.')); }

  const std::string& folder_;
  const Tensors& tensors_;
  const ModelSpec& spec_;
  const FamilyTable& family_;
  std::map<std::pair<Role, int64_t>, WeightView> views_;
  std::set<std::string, std::less<>> bound_;
  std::vector<std::string> missing_;
};

}  // namespace

struct Weights::Content {
  std::vector<MappedFile> files;
  std::map<std::pair<Role, int64_t>, WeightView> views;
  int64_t num_layers;
  bool shared_layers;

  const WeightView* find(Role role, int64_t layer) const {
    const bool is_first = shared_layers && layer >= 0 && layer < num_layers;
    if (is_first || !is_layer_role(role)) layer = 0;
    const auto it = views.find({role, layer});
    return it == views.end() ? nullptr : &it->second;
  }
};

namespace {

// A file beside the index, or ../FOLDER/FILE.
bool is_shard_name(std::string_view shard) {
  const auto is_name = [](std::string_view part) {
    return !part.empty() && part != "." && part != ".." && part.find('/') == std::string_view::npos;
  };
  if (is_name(shard)) return true;
  if (!shard.starts_with("../")) return false;
  shard.remove_prefix(3);
  const size_t slash = shard.find('/');
  return slash != std::string_view::npos && is_name(shard.substr(0, slash)) && is_name(shard.substr(slash + 1));
}

// A shard's tensors by name, added to those of the others; of taken, if any, those alone.
void read_file(const std::string& path, std::vector<MappedFile>& files, Tensors& tensors,
               const std::set<std::string>* taken = nullptr) {
  files.emplace_back(path);
  for (auto& [name, tensor] : read_safetensors(files.back(), path)) {
    if (taken != nullptr && !taken->contains(name)) continue;
    if (!tensors.emplace(name, std::move(tensor)).second) {
      throw ModelError(path + ": tensor " + name + " is in another file of the model, too");
    }
  }
}

void read_shards(const std::string& folder, std::vector<MappedFile>& files, Tensors& tensors) {
  const std::string path = folder + "/" + kIndex;
  const MappedFile file(path);
  Json index;
  try {
    index = parse_json({reinterpret_cast<const char*>(file.data()), file.size()});
  } catch (const JsonError& error) {
    throw ModelError(path + ": " + error.what());
  }
  const Json* map = index.find("weight_map");
  const Json::Object* names = map == nullptr ? nullptr : map->as<Json::Object>();
  if (names == nullptr || names->empty()) throw ModelError(path + ": no weight_map of tensor names to files");
  std::map<std::string, std::set<std::string>> shards;
  for (const auto& [name, shard] : *names) {
    const std::string* shard_name = shard.as<std::string>();
    if (shard_name == nullptr || !is_shard_name(*shard_name)) {
      throw ModelError(path + ": tensor " + name + " is in " + json_text(shard) +
                       "; expected a file beside the index, or ../FOLDER/FILE");
    }
    shards[*shard_name].insert(name);
  }
  for (const auto& [shard, taken] : shards) {
    const bool is_shared = shard.find('/') != std::string::npos;
    read_file(folder + "/" + shard, files, tensors, is_shared ? &taken : nullptr);
  }
  for (const auto& [name, shard] : *names) {
    if (!tensors.contains(name)) {
      throw ModelError(path + ": tensor " + name + " is not in " + *shard.as<std::string>() +
                       ", where it should be");
    }
  }
}

[[noreturn]] void fail_without_weights(const std::string& folder) {
  for (const char* pickle : kPickles) {
    if (std::filesystem::exists(folder + "/" + pickle)) {
      throw ModelError(folder + ": only pickled weights (" + pickle +
                       "), which can run code when loaded; convert them to safetensors");
    }
  }
  throw ModelError(folder + ": no weights; expected " + kSingle + " or " + kIndex);
}

}  // namespace

Weights::Weights(const std::string& folder, const ModelSpec& spec) : content_(std::make_unique<Content>()) {
  Tensors tensors;
  if (std::filesystem::exists(folder + "/" + kSingle)) {
    read_file(folder + "/" + kSingle, content_->files, tensors);
  } else if (std::filesystem::exists(folder + "/" + kIndex)) {
    read_shards(folder, content_->files, tensors);
  } else {
    fail_without_weights(folder);
  }
  content_->views = Binder(folder, tensors, spec).bind();
  content_->num_layers = spec.num_layers;
  content_->shared_layers = spec.shared_layers;
}

Weights::~Weights() = default;
Weights::Weights(Weights&&) noexcept = default;
Weights& Weights::operator=(Weights&&) noexcept = default;

bool Weights::has(Role role, int64_t layer) const { return content_->find(role, layer) != nullptr; }

WeightView Weights::tensor(Role role, int64_t layer) const {
  const WeightView* view = content_->find(role, layer);
  if (view == nullptr) throw std::out_of_range("the model has no tensor of this role and layer");
  return *view;
}

std::vector<float> Weights::floats(Role role, int64_t layer) const {
  const WeightView view = tensor(role, layer);
  std::vector<float> values(view.size());
  view.read(0, view.size(), values.data());
  return values;
}

void Weights::release() const {
  for (const MappedFile& file : content_->files) file.release();
}

bool is_layer_role(Role role) { return role >= Role::attention_norm_weight && role <= Role::mlp_output_bias; }

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f32: return "float32";
    case DType::f16: return "float16";
    default: return "bfloat16";
  }
}

float f16_to_f32(uint16_t bits) {
  // Without a branch, so that many are read at once.
  const uint32_t magnitude = uint32_t{bits & 0x7fffu} << 13;
  constexpr uint32_t kRebias = 112u << 23, kInfinity = 0x1fu << 23, kNormal = 1u << 23;
  const uint32_t normal = magnitude + kRebias + (magnitude >= kInfinity ? kRebias : 0);
  // A subnormal: its mantissa above 2^-14, less 2^-14; no float subnormal is touched.
  constexpr uint32_t kBase = kRebias + kNormal;
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude + kBase) -
                                                     std::bit_cast<float>(kBase));
  const uint32_t result = magnitude < kNormal ? subnormal : normal;
  return std::bit_cast<float>(result | uint32_t{bits & 0x8000u} << 16);
}

float bf16_to_f32(uint16_t bits) {
  const uint32_t shifted = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &shifted, sizeof value);
  return value;
}

void WeightView::read(int64_t begin, int64_t count, float* floats) const {
  const std::byte* from = data + begin * dtype_size(dtype);
  const auto convert = [&](auto to_f32) {
    for (int64_t i = 0; i < count; ++i) {
      uint16_t bits;
      std::memcpy(&bits, from + i * sizeof bits, sizeof bits);
      floats[i] = to_f32(bits);
    }
  };
  switch (dtype) {
    case DType::f32: std::memcpy(floats, from, count * sizeof(float)); break;
    case DType::f16: convert([](uint16_t bits) { return f16_to_f32(bits); }); break;
    case DType::bf16: convert([](uint16_t bits) { return bf16_to_f32(bits); }); break;
  }
}

}  // namespace mlmfast
