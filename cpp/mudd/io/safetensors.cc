#include "mudd/io/safetensors.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>

#include "mudd/io/json_reader.h"
#include "mudd/io/safetensors_header.h"

namespace mudd::io {
namespace {

constexpr std::array<Dtype, 18> kDtypes = {{{"BOOL", 1},
                                            {"U8", 1},
                                            {"I8", 1},
                                            {"F8_E5M2", 1},
                                            {"F8_E4M3", 1},
                                            {"F8_E8M0", 1},
                                            {"U16", 2},
                                            {"I16", 2},
                                            {"F16", 2},
                                            {"BF16", 2},
                                            {"U32", 4},
                                            {"I32", 4},
                                            {"F32", 4},
                                            {"U64", 8},
                                            {"I64", 8},
                                            {"F64", 8},
                                            {"C64", 8},
                                            {"C128", 16}}};

// Compute the bytes of a tensor of this shape; return false if 64 bits are too few or the dtype is unknown.
bool tensor_bytes(std::string_view dtype, const std::vector<std::uint64_t>& shape, std::uint64_t* bytes) {
  const Dtype* known = find_dtype(dtype);
  if (known == nullptr) return false;
  // A zero makes the tensor empty, but the other factors must still be allocatable sizes.
  std::uint64_t product = known->width;
  bool empty = false;
  for (const std::uint64_t dim : shape) {
    if (dim == 0) {
      empty = true;
    } else if (!multiply_checked(product, dim, &product)) {
      return false;
    }
  }
  *bytes = empty ? 0 : product;
  return true;
}

std::string tensor_entry(const TensorSource& source, std::uint64_t begin) {
  std::string out = json_quoted(source.name) + ":{\"dtype\":" + json_quoted(source.dtype) + ",\"shape\":[";
  for (std::size_t i = 0; i < source.shape.size(); ++i) {
    if (i > 0) out += ",";
    out += std::to_string(source.shape[i]);
  }
  out += "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(begin + source.bytes) + "]}";
  return out;
}

void check_source(const TensorSource& source) {
  const std::string tensor = "[safetensors] tensor " + json_quoted(source.name) + ": ";
  if (source.name.empty() || source.name.size() > kMaxNameBytes || source.name == "__metadata__" ||
      !valid_utf8(source.name)) {
    throw Error(tensor + "expected a name of 1 to 1024 bytes of UTF-8, not __metadata__");
  }
  std::uint64_t bytes = 0;
  if (!tensor_bytes(source.dtype, source.shape, &bytes)) {
    throw Error(tensor + "expected a known dtype and a shape that fits 64 bits, got " + source.dtype);
  }
  if (bytes != source.bytes) {
    throw Error(tensor + "expected " + std::to_string(bytes) + " bytes, got " + std::to_string(source.bytes));
  }
}

}  // namespace

const Dtype* find_dtype(std::string_view name) {
  const auto found =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& known) { return known.name == name; });
  return found != kDtypes.end() ? &*found : nullptr;
}

SafetensorsFile::SafetensorsFile(FileOps& ops, const std::string& path) : reader_(ops, path) {
  const std::uint64_t header_bytes = reader_.read_u64(0, "the header length");
  if (header_bytes > kMaxHeaderBytes) {
    reader_.refuse(0, "a header of " + std::to_string(header_bytes) + " bytes, more than 100 MB");
  }
  reader_.require(8, header_bytes, "the header");
  std::string text(header_bytes, '\0');
  reader_.read(8, text.data(), header_bytes, "the header");
  SafetensorsHeader header = parse_safetensors_header(text, path, 8);
  data_start_ = 8 + header_bytes;
  tensors_ = std::move(header.tensors);
  metadata_ = std::move(header.metadata);
  check_ranges();
}

void SafetensorsFile::check_ranges() {
  std::vector<const std::string*> names;
  names.reserve(tensors_.size());
  for (const TensorInfo& tensor : tensors_) names.push_back(&tensor.name);
  std::sort(names.begin(), names.end(), [](const auto* a, const auto* b) { return *a < *b; });
  const auto twice =
      std::adjacent_find(names.begin(), names.end(), [](const auto* a, const auto* b) { return *a == *b; });
  if (twice != names.end()) reader_.refuse(8, "duplicate key " + json_quoted(**twice));

  std::sort(tensors_.begin(), tensors_.end(), [](const TensorInfo& a, const TensorInfo& b) {
    if (a.begin != b.begin) return a.begin < b.begin;
    return a.end != b.end ? a.end < b.end : a.name < b.name;
  });
  std::uint64_t next = 0;
  for (TensorInfo& tensor : tensors_) {
    const std::string name = "tensor " + json_quoted(tensor.name);
    std::uint64_t bytes = 0;
    if (!tensor_bytes(tensor.dtype, tensor.shape, &bytes)) reader_.refuse(8, name + " has a shape beyond 64 bits");
    if (tensor.begin != next) {
      reader_.refuse(8, name + " starts at " + std::to_string(tensor.begin) + " where " + std::to_string(next) +
                            " was due: a hole or an overlap");
    }
    if (tensor.end < tensor.begin || tensor.end - tensor.begin != bytes) {
      reader_.refuse(8, name + " has a range of another size than its shape and dtype say (" +
                            std::to_string(bytes) + " bytes)");
    }
    next = tensor.end;
    if (next > size() - data_start_) reader_.refuse(8, name + " ends beyond the end of the file");
    tensor.begin += data_start_;
    tensor.end += data_start_;
  }
  if (next != size() - data_start_) {
    reader_.refuse(data_start_ + next, std::to_string(size() - data_start_ - next) + " bytes that no tensor owns");
  }
}

std::string safetensors_header(const std::vector<TensorSource>& tensors, const Metadata& metadata) {
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (std::size_t i = 0; i < metadata.size(); ++i) {
      if (i > 0) json += ",";
      json += json_quoted(metadata[i].first) + ":" + json_quoted(metadata[i].second);
    }
    json += "}";
  }
  std::uint64_t begin = 0;
  for (const TensorSource& source : tensors) {
    check_source(source);
    if (json.size() > 1) json += ",";
    json += tensor_entry(source, begin);
    begin += source.bytes;
  }
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > kMaxHeaderBytes) throw Error("[safetensors] header: expected at most 100 MB");
  std::string out;
  for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<char>((json.size() >> shift) & 0xFFu));
  return out + json;
}

}  // namespace mudd::io
