// JSON files of a model's folder.
#pragma once

#include <string>

#include "json.h"

namespace mlmfast {

// The object a file holds. Throws ModelError, naming the file, for one that cannot be read or holds anything
// else.
Json read_json_object(const std::string& path);

}  // namespace mlmfast
