#include "mudd/io/bounded_reader.h"

namespace mudd::io {

bool multiply_checked(std::uint64_t a, std::uint64_t b, std::uint64_t* product) {
  return !__builtin_mul_overflow(a, b, product);
}

bool add_checked(std::uint64_t a, std::uint64_t b, std::uint64_t* sum) {
  return !__builtin_add_overflow(a, b, sum);
}

BoundedReader::BoundedReader(FileOps& ops, const std::string& path)
    : file_(File::open_read(ops, path)), size_(file_.size()) {}

void BoundedReader::require(std::uint64_t begin, std::uint64_t bytes, const std::string& what) const {
  std::uint64_t end = 0;
  if (!add_checked(begin, bytes, &end) || end > size_) {
    refuse(begin, what + " needs " + std::to_string(bytes) + " bytes here, but the file has " +
                      std::to_string(size_) + " in all");
  }
}

void BoundedReader::read(std::uint64_t begin, void* data, std::uint64_t bytes, const std::string& what) const {
  require(begin, bytes, what);
  file_.read_exact(data, bytes, begin);
}

std::uint64_t BoundedReader::read_u64(std::uint64_t begin, const std::string& what) const {
  unsigned char bytes[8];
  read(begin, bytes, sizeof bytes, what);
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = (value << 8) | bytes[i];
  return value;
}

void BoundedReader::refuse(std::uint64_t offset, const std::string& reason) const {
  throw FormatError(path(), static_cast<std::int64_t>(offset), reason);
}

}  // namespace mudd::io
