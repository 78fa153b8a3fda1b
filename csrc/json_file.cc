#include "json_file.h"

#include "mlmfast/model_spec.h"
#include "safetensors.h"

namespace mlmfast {

Json read_json_object(const std::string& path) {
  const MappedFile file(path);
  try {
    Json json = parse_json({reinterpret_cast<const char*>(file.data()), file.size()});
    if (json.as<Json::Object>() == nullptr) throw JsonError("not a JSON object");
    return json;
  } catch (const JsonError& error) {
    throw ModelError(path + ": " + error.what());
  }
}

}  // namespace mlmfast
