#include "mask_token.h"

#include <filesystem>
#include <initializer_list>
#include <sstream>
#include <string_view>
#include <utility>

#include "json_file.h"
#include "safetensors.h"

namespace mlmfast {
namespace {

using Id = std::optional<int64_t>;

// The member of tokenizer.json that ids are looked up in, from a file of one token a line.
Json read_vocabulary(const std::string& path) {
  const MappedFile file(path);
  std::istringstream lines(std::string(reinterpret_cast<const char*>(file.data()), file.size()));
  Json::Object vocabulary;
  int64_t id = 0;
  for (std::string token; lines >> token;) vocabulary.insert_or_assign(token, Json{id++});
  return {Json::Object{{"model", {Json::Object{{"vocab", {std::move(vocabulary)}}}}}}};
}

Id find_id(const Json& tokenizer, const std::string& token) {
  const Json* added = tokenizer.find("added_tokens");
  const Json::Array* entries = added == nullptr ? nullptr : added->as<Json::Array>();
  for (size_t i = 0; entries != nullptr && i < entries->size(); ++i) {
    const Json *content = (*entries)[i].find("content"), *id = (*entries)[i].find("id");
    const std::string* text = content == nullptr ? nullptr : content->as<std::string>();
    if (text != nullptr && *text == token && id != nullptr && id->as<int64_t>() != nullptr) return *id->as<int64_t>();
  }
  const Json* model = tokenizer.find("model");
  const Json* vocabulary = model == nullptr ? nullptr : model->find("vocab");
  const Json* id = vocabulary == nullptr ? nullptr : vocabulary->find(token);
  return id == nullptr || id->as<int64_t>() == nullptr ? Id() : Id(*id->as<int64_t>());
}

// The token of a role in special_tokens_map.json and tokenizer_config.json (which wins): a string, or an
// object's content.
std::optional<std::string> stated_token(const std::string& folder, std::string_view role) {
  std::optional<std::string> token;
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    const std::string path = folder + "/" + name;
    if (!std::filesystem::exists(path)) continue;
    const Json values = read_json_object(path);
    const Json* found = values.find(role);
    if (found != nullptr && found->find("content") != nullptr) found = found->find("content");
    if (found != nullptr && found->as<std::string>() != nullptr) token = *found->as<std::string>();
  }
  return token;
}

// Of the token stated for a role, or else of the first customary spelling there is.
Id find_role(const std::string& folder, const Json& tokenizer, std::string_view role,
             std::initializer_list<const char*> customary) {
  if (const std::optional<std::string> stated = stated_token(folder, role)) return find_id(tokenizer, *stated);
  for (const char* token : customary) {
    if (const Id id = find_id(tokenizer, token)) return id;
  }
  return {};
}

}  // namespace

std::optional<int64_t> read_mask_token_id(const std::string& folder, const ModelSpec& spec) {
  const std::string path = folder + "/tokenizer.json", lines = folder + "/vocab.txt";
  Json tokenizer;
  if (std::filesystem::exists(path)) {
    tokenizer = read_json_object(path);
  } else if (spec.model_type == "esm" && std::filesystem::exists(lines)) {
    tokenizer = read_vocabulary(lines);
  } else {
    return {};
  }
  const Id mask = find_role(folder, tokenizer, "mask_token", {"[MASK]", "<mask>"});
  if (!mask) throw ModelError(folder + ": its tokenizer has no mask token, which a masked model needs");
  if (mask == find_role(folder, tokenizer, "unk_token", {"[UNK]", "<unk>"})) {
    throw ModelError(folder + ": its tokenizer has no mask token of its own: it is the unknown token");
  }
  if (*mask < 0 || *mask >= spec.vocab_size) {
    throw ModelError(folder + ": its tokenizer's mask token has id " + std::to_string(*mask) + "; expected 0 to " +
                     std::to_string(spec.vocab_size - 1) + ", as config.json's vocab_size says");
  }
  return mask;
}

}  // namespace mlmfast
