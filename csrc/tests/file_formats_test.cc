// JSON, half floats and the safetensors format.
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "json.h"
#include "mlmfast/model_spec.h"
#include "mlmfast/weights.h"
#include "model_testing.h"
#include "safetensors.h"

using namespace mlmfast;

namespace {

void check_json() {
  const Json json =
      parse_json(R"( {"a": [1, -2.5e1, true, null], "b": "x\n\u00e9\ud83d\ude00", "a": {"c": 3}} )");
  expect_equal(json_text(json), "{\"a\": {\"c\": 3}, \"b\": \"x \xc3\xa9\xf0\x9f\x98\x80\"}",
               "the last of two keys");
  expect_equal(*json.find("b")->as<std::string>(), "x\n\xc3\xa9\xf0\x9f\x98\x80", "escapes");
  expect(json.find("c") == nullptr && Json{}.find("a") == nullptr, "members that are not there");
  expect_equal(*parse_json("9223372036854775807").as<int64_t>(), INT64_MAX, "the largest integer");
  expect_equal(*parse_json("9223372036854775808").as<double>(), 9223372036854775808.0,
               "a number beyond integers");
  expect_equal(*parse_json("1e-12").as<double>(), 1e-12, "a fraction");
  const std::string deep(63, '['), closed(63, ']');
  expect(parse_json(deep + closed).as<Json::Array>() != nullptr, "63 deep");

  const std::pair<const char*, const char*> bad[] = {
      {"", "it ends early at byte 0"},
      {"{\"a\": 1", "expected , or } at byte 7"},
      {"{\"a\" 1}", "expected : at byte 5"},
      {"{a: 1}", "expected a key in double quotes at byte 1"},
      {"[1,]", "expected a value at byte 3"},
      {"[01]", "expected , or ] at byte 2"},
      {"[1.]", "expected a value at byte 3"},
      {"NaN", "expected a value at byte 0"},
      {"1e999", "beyond double precision"},
      {"1 2", "expected nothing after the value at byte 2"},
      {"\"a\nb\"", "control character in a string at byte 2"},
      {"\"abc", "a string does not end at byte 4"},
      {"\"\\x\"", "unknown escape at byte 2"},
      {"\"\\u12g4\"", "four hexadecimal digits at byte 3"},
      {"\"\\ud800\"", "half a surrogate pair"},
      {"\"\\udc00\"", "half a surrogate pair"},
      {"\"\xff\"", "not UTF-8 at byte 1"},
      {"\"\xc0\x80\"", "not UTF-8 at byte 1"},
      {"\"\xed\xa0\x80\"", "not UTF-8 at byte 1"},
      {"\"\xf4\x90\x80\x80\"", "not UTF-8 at byte 1"},
      {"\"\xe2\x82", "not UTF-8 at byte 1"},
  };
  for (const auto& [text, message] : bad) {
    expect_refusal<JsonError>([&] { parse_json(text); }, message, "JSON " + std::string(text));
  }
  expect_refusal<JsonError>([&] { parse_json(deep + "[" + "]" + closed); }, "nested 64 deep", "64 deep");
}

void check_half_floats() {
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const int exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
    double expected = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31) expected = mantissa == 0 ? INFINITY : NAN;
    if (bits >> 15) expected = -expected;
    const float found = f16_to_f32(static_cast<uint16_t>(bits));
    const bool same = std::isnan(expected) ? std::isnan(found) : found == expected;
    expect(same && std::signbit(found) == (bits >> 15 != 0), "float16 " + std::to_string(bits));
  }
  expect_equal(bf16_to_f32(0x3f80), 1.0f, "bfloat16 1");
  expect_equal(bf16_to_f32(0xc049), -3.140625f, "bfloat16 -3.14");
}

// A file of one tensor of the given header and data.
std::string safetensors_bytes(const std::string& header, const std::string& data) {
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i));
  return length + header + data;
}

void check_headers(const TemporaryFolder& temporary) {
  const std::string path = (temporary.path() / "tensors").string(), eight(8, '\0');
  const auto read = [&](const std::string& bytes) {
    write_bytes(path, bytes);
    const MappedFile file(path);
    return read_safetensors(file, path).size();
  };
  expect_equal(read(safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", eight)),
               size_t{1}, "one tensor");
  expect_equal(read(safetensors_bytes(R"({"b":{"dtype":"F32","shape":[0],"data_offsets":[8,8]},
                                          "a":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]}}  )",
                                      eight)),
               size_t{2}, "an empty tensor");
  const std::pair<std::string, const char*> bad[] = {
      {"", "the file is empty"},
      {"abc", "it has 3 bytes"},
      {std::string(16, '\xff'), "announces a header of 18446744073709551615 bytes in a file of 16"},
      {safetensors_bytes("[]", ""), "no JSON object"},
      {safetensors_bytes("{", ""), "expected a key in double quotes at byte 1 of the header"},
      {safetensors_bytes(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", eight),
       "F32 [3] in 8 bytes"},
      {safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "1234"),
       "data_offsets are [0, 8] in 4"},
      {safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", eight + "x"),
       "end at byte 8 of 9"},
      {safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", eight),
       "begins at byte 4"},
      {safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                             "b":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})",
                         eight),
       "begins at byte 0"},
      {safetensors_bytes(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}})", eight),
       "shape is [-1]"},
      {safetensors_bytes(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", ""),
       "F32 [4611686018427387904, 4]"},
      {safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", eight),
       "data_offsets are [8, 0]"},
      {safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", eight),
       "data_offsets are [0]"},
      {safetensors_bytes(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", eight), "tensor a: no dtype"},
      {safetensors_bytes(R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", eight), "shape is missing"},
  };
  for (const auto& [bytes, message] : bad) {
    expect_refusal<ModelError>([&] { read(bytes); }, message, "safetensors: " + std::string(message));
  }
}

}  // namespace

int main() {
  const TemporaryFolder temporary;
  check_json();
  check_half_floats();
  check_headers(temporary);
  return report();
}
