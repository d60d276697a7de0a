// Safetensors files: eight bytes of header length (little-endian), a JSON header, then the tensors' bytes,
// contiguous. The writer creates the shards of a checkpoint from memory that it does not own; the reader
// accepts any file, however malformed, and returns tensors or throws FormatError.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mudd/io/bounded_reader.h"

namespace mudd::io {

using Metadata = std::vector<std::pair<std::string, std::string>>;

struct TensorInfo {
  std::string name;
  std::string_view dtype;  // the format's name, of static storage: F32, BF16, I64, BOOL, ...
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;  // bytes from the start of the file, not of the data
  std::uint64_t end = 0;
};

struct Dtype {
  std::string_view name;
  std::uint64_t width = 0;  // bytes of one element
};

// Return the dtype of this name, or nullptr for an unknown one.
const Dtype* find_dtype(std::string_view name);

// The limits of the reader (docs/checkpoints.md, 4).
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::uint64_t kMaxTensors = 1'000'000;
inline constexpr std::size_t kMaxNameBytes = 1024;
inline constexpr std::size_t kMaxDims = 64;
inline constexpr std::size_t kMaxMetadata = 10'000;

class SafetensorsFile {
 public:
  // Read and check the header; the tensors' bytes are not read.
  SafetensorsFile(FileOps& ops, const std::string& path);

  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // in the order of their bytes
  const Metadata& metadata() const { return metadata_; }
  std::uint64_t data_start() const { return data_start_; }
  std::uint64_t size() const { return reader_.size(); }
  const BoundedReader& reader() const { return reader_; }

 private:
  void check_ranges();

  BoundedReader reader_;
  std::uint64_t data_start_ = 0;
  std::vector<TensorInfo> tensors_;
  Metadata metadata_;
};

// A tensor to write: `bytes` bytes at `data`, which must stay unchanged until the writer returns. With `make`
// they are created when they are written, and must stay until the next source is created. With `read` the bytes
// are copied in order, a block at a time, while their owner may continue (live_bytes.h).
struct TensorSource {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  const void* data = nullptr;
  std::uint64_t bytes = 0;
  std::function<const void*()> make;
  std::function<void(void* to, std::uint64_t bytes)> read;
};

// Return the length field and the JSON, padded with spaces to a multiple of 8 bytes so that the data is
// aligned. The tensors' bytes follow in the same order. Throws Error for a source that breaks a rule.
std::string safetensors_header(const std::vector<TensorSource>& tensors, const Metadata& metadata);

}  // namespace mudd::io
