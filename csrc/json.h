// JSON (RFC 8259) as models write it: strict, small, read whole.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace mlmfast {

// What is wrong, and at which byte.
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Json {
  using Array = std::vector<Json>;
  using Object = std::map<std::string, Json, std::less<>>;

  // A whole number beyond int64_t is a double.
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value;

  template <class T>
  const T* as() const {
    return std::get_if<T>(&value);
  }
  bool is_null() const { return value.index() == 0; }

  // A member of an object; null where there is none, or no object.
  const Json* find(std::string_view key) const;
};

// Of two members with one key, the last counts. Throws JsonError for anything but one UTF-8 JSON value
// that nests less than 64 deep.
Json parse_json(std::string_view text);

// For messages: JSON again, cut where it is long.
std::string json_text(const Json& json);

}  // namespace mlmfast
