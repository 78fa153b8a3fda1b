#include "json.h"

#include <charconv>

namespace mlmfast {
namespace {

constexpr int kMaxDepth = 64;
constexpr size_t kMaxText = 80;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Json parse() {
    Json json = parse_value();
    skip_space();
    if (at_ < text_.size()) fail("expected nothing after the value");
    return json;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw JsonError("not valid JSON: " + what + " at byte " + std::to_string(at_));
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  void skip_space() {
    while (take(' ') || take('\n') || take('\r') || take('\t')) {
    }
  }

  Json parse_value() {
    skip_space();
    switch (peek()) {
      case '{': return parse_nested(&Parser::parse_object);
      case '[': return parse_nested(&Parser::parse_array);
      case '"': return {parse_string()};
      default: break;
    }
    if (take("null")) return {};
    if (take("true")) return {true};
    if (take("false")) return {false};
    return parse_number();
  }

  Json parse_nested(Json (Parser::*parse_content)()) {
    if (++depth_ == kMaxDepth) fail("nested " + std::to_string(kMaxDepth) + " deep");
    ++at_;
    skip_space();
    Json json = (this->*parse_content)();
    --depth_;
    return json;
  }

  // Between two elements; false at the end.
  bool another(char end) {
    skip_space();
    if (take(end)) return false;
    if (!take(',')) fail(std::string("expected , or ") + end);
    skip_space();
    return true;
  }

  Json parse_object() {
    Json::Object object;
    if (take('}')) return {std::move(object)};
    do {
      if (peek() != '"') fail("expected a key in double quotes");
      std::string key = parse_string();
      skip_space();
      if (!take(':')) fail("expected :");
      object.insert_or_assign(std::move(key), parse_value());
    } while (another('}'));
    return {std::move(object)};
  }

  Json parse_array() {
    Json::Array array;
    if (take(']')) return {std::move(array)};
    do array.push_back(parse_value());
    while (another(']'));
    return {std::move(array)};
  }

  void skip_digits() {
    if (peek() < '0' || peek() > '9') fail(at_ < text_.size() ? "expected a value" : "it ends early");
    while (peek() >= '0' && peek() <= '9') ++at_;
  }

  Json parse_number() {
    const size_t begin = at_;
    take('-');
    if (!take('0')) skip_digits();
    bool whole = true;
    if (take('.')) {
      skip_digits();
      whole = false;
    }
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      skip_digits();
      whole = false;
    }
    const char *first = text_.data() + begin, *last = text_.data() + at_;
    if (int64_t integer; whole && std::from_chars(first, last, integer).ec == std::errc()) return {integer};
    double number;
    if (std::from_chars(first, last, number).ec != std::errc()) fail("a number beyond double precision ends");
    return {number};
  }

  std::string parse_string() {
    ++at_;
    std::string string;
    while (!take('"')) {
      if (at_ >= text_.size()) fail("a string does not end");
      const auto byte = static_cast<unsigned char>(text_[at_]);
      if (byte < 0x20) fail("control character in a string");
      if (byte == '\\') {
        ++at_;
        parse_escape(string);
      } else if (byte < 0x80) {
        string += text_[at_++];
      } else {
        copy_multibyte(string);
      }
    }
    return string;
  }

  void parse_escape(std::string& string) {
    constexpr std::string_view kEscapes = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    if (take('u')) return append_utf8(parse_code_point(), string);
    const size_t which = kEscapes.find(peek());
    if (at_ >= text_.size() || which == std::string_view::npos) fail("unknown escape");
    string += kMeanings[which];
    ++at_;
  }

  uint32_t parse_hex() {
    uint32_t code = 0;
    const char* first = text_.data() + at_;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [end, error] = std::from_chars(first, first + digits.size(), code, 16);
    if (error != std::errc() || end != first + 4) fail("expected four hexadecimal digits");
    at_ += 4;
    return code;
  }

  uint32_t parse_code_point() {
    const uint32_t code = parse_hex();
    if (code < 0xd800 || code > 0xdfff) return code;
    if (code > 0xdbff || !take("\\u")) fail("half a surrogate pair");
    const uint32_t low = parse_hex();
    if (low < 0xdc00 || low > 0xdfff) fail("half a surrogate pair");
    return 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }

  static void append_utf8(uint32_t code, std::string& string) {
    const auto tail = [&](int shift) { string += static_cast<char>(0x80 | (code >> shift & 0x3f)); };
    if (code < 0x80) {
      string += static_cast<char>(code);
    } else if (code < 0x800) {
      string += static_cast<char>(0xc0 | code >> 6);
      tail(0);
    } else if (code < 0x10000) {
      string += static_cast<char>(0xe0 | code >> 12);
      tail(6);
      tail(0);
    } else {
      string += static_cast<char>(0xf0 | code >> 18);
      tail(12);
      tail(6);
      tail(0);
    }
  }

  // Shortest form only, no surrogates, nothing beyond U+10FFFF.
  void copy_multibyte(std::string& string) {
    const auto lead = static_cast<unsigned char>(text_[at_]);
    const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    if (lead < 0xc2 || lead > 0xf4 || text_.size() - at_ < length) fail("not UTF-8");
    uint32_t code = lead & (0x7fu >> length);
    for (size_t i = 1; i < length; ++i) {
      const auto byte = static_cast<unsigned char>(text_[at_ + i]);
      if ((byte & 0xc0) != 0x80) fail("not UTF-8");
      code = code << 6 | (byte & 0x3fu);
    }
    if (code < kLeast[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) fail("not UTF-8");
    string += text_.substr(at_, length);
    at_ += length;
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

void append_quoted(const std::string& string, std::string& text) {
  text += '"';
  for (char c : string) {
    if (c == '"' || c == '\\') text += '\\';
    text += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  text += '"';
}

struct Writer {
  std::string& text;

  void operator()(std::monostate) const { text += "null"; }
  void operator()(bool flag) const { text += flag ? "true" : "false"; }
  void operator()(int64_t integer) const { text += std::to_string(integer); }
  void operator()(double number) const {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    text.append(digits, end);
  }
  void operator()(const std::string& string) const { append_quoted(string, text); }
  void operator()(const Json::Array& array) const {
    text += '[';
    for (size_t i = 0; i < array.size() && text.size() < kMaxText; ++i) {
      if (i > 0) text += ", ";
      std::visit(*this, array[i].value);
    }
    text += ']';
  }
  void operator()(const Json::Object& object) const {
    text += '{';
    for (auto it = object.begin(); it != object.end() && text.size() < kMaxText; ++it) {
      if (it != object.begin()) text += ", ";
      append_quoted(it->first, text);
      text += ": ";
      std::visit(*this, it->second.value);
    }
    text += '}';
  }
};

}  // namespace

const Json* Json::find(std::string_view key) const {
  const Object* object = as<Object>();
  if (object == nullptr) return nullptr;
  const auto it = object->find(key);
  return it == object->end() ? nullptr : &it->second;
}

Json parse_json(std::string_view text) { return Parser(text).parse(); }

std::string json_text(const Json& json) {
  std::string text;
  std::visit(Writer{text}, json.value);
  if (text.size() > kMaxText) text = text.substr(0, kMaxText) + "...";
  return text;
}

}  // namespace mlmfast
