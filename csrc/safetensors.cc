#include "safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "json.h"
#include "mlmfast/model_spec.h"

namespace mlmfast {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation

struct DTypeSize {
  std::string_view name;
  uint64_t num_bytes;
};

constexpr DTypeSize kDTypeSizes[] = {
    {"F32", 4},  {"F16", 2}, {"BF16", 2},    {"F64", 8},     {"I64", 8},     {"U64", 8},
    {"I32", 4},  {"U32", 4}, {"I16", 2},     {"U16", 2},     {"I8", 1},      {"U8", 1},
    {"BOOL", 1}, {"C64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
};

class HeaderReader {
 public:
  HeaderReader(const MappedFile& file, const std::string& path) : file_(file), path_(path) {}

  std::map<std::string, StoredTensor> read() {
    const Json header = parse_header();
    std::map<std::string, StoredTensor> tensors;
    for (const auto& [name, entry] : *header.as<Json::Object>()) {
      if (name != "__metadata__") tensors.emplace(name, read_entry(name, entry));
    }
    check_layout(tensors);
    return tensors;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw ModelError(path_ + ": not a whole safetensors file: " + what);
  }

  Json parse_header() {
    if (file_.size() < kLengthBytes) fail("it has " + std::to_string(file_.size()) + " bytes");
    uint64_t length = 0;
    for (uint64_t i = kLengthBytes; i-- > 0;) {
      length = length << 8 | std::to_integer<uint64_t>(file_.data()[i]);
    }
    if (length == 0 || length > std::min(file_.size() - kLengthBytes, kMaxHeaderBytes)) {
      fail("it announces a header of " + std::to_string(length) + " bytes in a file of " +
           std::to_string(file_.size()));
    }
    data_ = file_.data() + kLengthBytes + length;
    data_size_ = file_.size() - kLengthBytes - length;
    const char* text = reinterpret_cast<const char*>(file_.data() + kLengthBytes);
    try {
      Json header = parse_json({text, length});
      if (header.as<Json::Object>() == nullptr) fail("its header is no JSON object");
      return header;
    } catch (const JsonError& error) {
      fail(std::string("its header is ") + error.what() + " of the header");
    }
  }

  // A list of whole numbers that are not negative.
  std::vector<int64_t> read_sizes(const std::string& name, const Json& entry, std::string_view key) const {
    const Json* found = entry.find(key);
    const Json::Array* array = found == nullptr ? nullptr : found->as<Json::Array>();
    std::vector<int64_t> sizes;
    for (size_t i = 0; array != nullptr && i < array->size(); ++i) {
      const int64_t* size = (*array)[i].as<int64_t>();
      if (size == nullptr || *size < 0) break;
      sizes.push_back(*size);
    }
    if (array == nullptr || sizes.size() != array->size()) {
      fail("tensor " + name + ": " + std::string(key) + " is " +
           (found == nullptr ? "missing" : json_text(*found)) + "; expected a list of whole numbers");
    }
    return sizes;
  }

  StoredTensor read_entry(const std::string& name, const Json& entry) const {
    const Json* dtype = entry.find("dtype");
    if (dtype == nullptr || dtype->as<std::string>() == nullptr) fail("tensor " + name + ": no dtype");
    std::vector<int64_t> shape = read_sizes(name, entry, "shape");
    const std::vector<int64_t> offsets = read_sizes(name, entry, "data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1] || static_cast<uint64_t>(offsets[1]) > data_size_) {
      fail("tensor " + name + ": data_offsets are " + json_text(*entry.find("data_offsets")) + " in " +
           std::to_string(data_size_) + " bytes of data; it may have been cut short");
    }
    StoredTensor tensor{*dtype->as<std::string>(), std::move(shape), data_ + offsets[0],
                        static_cast<uint64_t>(offsets[1] - offsets[0])};
    check_size(name, tensor);
    return tensor;
  }

  void check_size(const std::string& name, const StoredTensor& tensor) const {
    const auto* known = std::find_if(std::begin(kDTypeSizes), std::end(kDTypeSizes),
                                     [&](const DTypeSize& size) { return size.name == tensor.dtype; });
    // Nothing reads a tensor of another dtype.
    if (known == std::end(kDTypeSizes)) return;
    uint64_t num_bytes = known->num_bytes;
    bool too_large = false;
    for (int64_t size : tensor.shape) {
      too_large |= __builtin_mul_overflow(num_bytes, static_cast<uint64_t>(size), &num_bytes);
    }
    if (too_large || num_bytes != tensor.num_bytes) {
      fail("tensor " + name + ": " + tensor_text(tensor) + " in " + std::to_string(tensor.num_bytes) +
           " bytes");
    }
  }

  void check_layout(const std::map<std::string, StoredTensor>& tensors) const {
    std::vector<std::pair<const std::byte*, const std::string*>> order;
    for (const auto& [name, tensor] : tensors) order.emplace_back(tensor.data, &name);
    // Empty tensors first among those that begin at one place.
    std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
      return std::pair(a.first, tensors.at(*a.second).num_bytes) <
             std::pair(b.first, tensors.at(*b.second).num_bytes);
    });
    const std::byte* end = data_;
    for (const auto& [begin, name] : order) {
      if (begin != end) {
        fail("tensor " + *name + " begins at byte " + std::to_string(begin - data_) +
             " of the data; expected " + std::to_string(end - data_) + ", where the one before it ends");
      }
      end = begin + tensors.at(*name).num_bytes;
    }
    if (end != data_ + data_size_) {
      fail("its tensors end at byte " + std::to_string(end - data_) + " of " + std::to_string(data_size_) +
           " bytes of data");
    }
  }

  const MappedFile& file_;
  const std::string& path_;
  const std::byte* data_ = nullptr;
  uint64_t data_size_ = 0;
};

}  // namespace

bool operator==(const StoredTensor& a, const StoredTensor& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.num_bytes == b.num_bytes &&
         std::equal(a.data, a.data + a.num_bytes, b.data);
}

std::string tensor_text(const StoredTensor& tensor) {
  std::string dims;
  for (int64_t size : tensor.shape) dims += (dims.empty() ? "" : ", ") + std::to_string(size);
  return tensor.dtype + " [" + dims + "]";
}

MappedFile::MappedFile(const std::string& path) {
  // O_NONBLOCK: a pipe of that name is refused, not waited for.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) throw ModelError(path + ": cannot be opened (" + std::strerror(errno) + ")");
  struct stat status{};
  const bool is_file = fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  void* mapped = MAP_FAILED;
  if (is_file && status.st_size > 0) {
    mapped = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
  }
  const int error = errno;
  close(file);
  if (!is_file) throw ModelError(path + ": not a regular file");
  if (status.st_size == 0) throw ModelError(path + ": the file is empty");
  if (mapped == MAP_FAILED) throw ModelError(path + ": cannot be mapped (" + std::strerror(error) + ")");
  data_ = static_cast<const std::byte*>(mapped);
  size_ = static_cast<uint64_t>(status.st_size);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release() const { madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

std::map<std::string, StoredTensor> read_safetensors(const MappedFile& file, const std::string& path) {
  return HeaderReader(file, path).read();
}

}  // namespace mlmfast
