// What the tests of reading models share: expectations, files, a temporary folder.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "mlmfast/model_spec.h"
#include "mlmfast/weights.h"

namespace mlmfast {

namespace fs = std::filesystem;

inline int num_failures = 0;

inline void expect(bool holds, const std::string& what) {
  if (holds) return;
  ++num_failures;
  std::cerr << "FAILED: " << what << "\n";
}

template <class A, class B>
void expect_equal(const A& found, const B& expected, const std::string& what) {
  if (found == expected) return;
  ++num_failures;
  std::cerr << "FAILED: " << what << ": " << found << ", expected " << expected << "\n";
}

// An Error whose message contains part, and no other exception.
template <class Error, class Function>
void expect_refusal(Function function, const std::string& part, const std::string& what) {
  std::string message = "nothing";
  try {
    function();
  } catch (const Error& error) {
    message = error.what();
    if (message.find(part) != std::string::npos) return;
  } catch (const std::exception& error) {
    message = std::string("an exception of another kind, ") + error.what();
  }
  expect(false, what + ": came " + message + "; expected an error that says " + part);
}

inline std::string read_bytes(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline void write_bytes(const fs::path& path, const std::string& bytes) {
  fs::remove(path);  // never through a link
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// Where the data of a safetensors file of less than 64 KiB of header begin.
inline size_t data_begin(const std::string& bytes) {
  return 8 + static_cast<uint8_t>(bytes[0]) + 256 * static_cast<uint8_t>(bytes[1]);
}

// A folder of this process, removed with its content.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_(fs::temp_directory_path() / ("mlmfast-model-test-" + std::to_string(getpid()))) {
    fs::create_directories(path_);
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

  // Emptied, and filled with links to the files of a model.
  std::string link_files_of(const fs::path& model) const {
    for (const auto& entry : fs::directory_iterator(path_)) fs::remove(entry.path());
    for (const auto& entry : fs::directory_iterator(model)) {
      fs::create_symlink(fs::absolute(entry.path()), path_ / entry.path().filename());
    }
    return path_.string();
  }

 private:
  fs::path path_;
};

// Every role of every layer; roles of no layer come once for each.
template <class Function>
void for_each_place(const ModelSpec& spec, Function function) {
  for (int role = 0; role < kNumRoles; ++role) {
    for (int64_t layer = 0; layer < spec.num_layers; ++layer) function(static_cast<Role>(role), layer);
  }
}

inline int report() {
  if (num_failures == 0) std::cout << "ok\n";
  return num_failures == 0 ? 0 : 1;
}

}  // namespace mlmfast
