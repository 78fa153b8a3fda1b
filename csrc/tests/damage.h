// Ways in which a file comes to be damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

namespace mlmfast {

class Damage {
 public:
  explicit Damage(uint32_t seed) : random_(seed) {}

  // One of many ways to damage the first `region` bytes, or the end.
  std::string apply(std::string bytes, size_t region) {
    const size_t at = below(region);
    switch (below(8)) {
      case 0: bytes[at] = static_cast<char>(bytes[at] ^ 1 << below(8)); break;
      case 1: bytes[at] = static_cast<char>(below(256)); break;
      case 2: bytes[at] = "{}[]\",:0129-. "[below(14)]; break;
      case 3: change_digit(bytes, at); break;
      case 4: bytes.erase(at, 1 + below(16)); break;
      case 5: bytes.insert(at, bytes.substr(below(region), 1 + below(16))); break;
      case 6: bytes.resize(below(bytes.size())); break;
      default: bytes.append(1 + below(64), static_cast<char>(below(256))); break;
    }
    return bytes;
  }

 private:
  size_t below(size_t limit) { return random_() % limit; }

  void change_digit(std::string& bytes, size_t at) {
    at = bytes.find_first_of("0123456789", at);
    if (at != std::string::npos) bytes[at] = static_cast<char>('0' + below(10));
  }

  std::mt19937 random_;
};

}  // namespace mlmfast
