// The safetensors format: 8 bytes of header length, a JSON header, and the tensors back to back.
// https://github.com/huggingface/safetensors#format
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mlmfast {

// Row-major data where the file is mapped, not necessarily aligned.
struct StoredTensor {
  std::string dtype;  // its name in the file: "F32", "I64", ...
  std::vector<int64_t> shape;
  const std::byte* data;
  uint64_t num_bytes;
};

// Whether two tensors are the same, byte for byte.
bool operator==(const StoredTensor& a, const StoredTensor& b);

// "F32 [2, 3]", for messages.
std::string tensor_text(const StoredTensor& tensor);

// A file mapped into memory, read-only.
class MappedFile {
 public:
  // Throws ModelError for what cannot be opened, is no regular file, or is empty.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(const MappedFile&) = delete;

  // Takes no memory until it is read again.
  void release() const;

  const std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

// The file's tensors by name; they point into the file. Throws ModelError unless they fill it without
// gap or overlap, each as large as its dtype and shape say.
std::map<std::string, StoredTensor> read_safetensors(const MappedFile& file, const std::string& path);

}  // namespace mlmfast
