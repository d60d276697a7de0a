// The reader for every format: each offset, length and product is checked for overflow and against the file
// size at opening, before a byte is used. Reads are never mapped, so a file that shrinks is a FormatError and
// not a SIGBUS.
#pragma once

#include <cstdint>
#include <string>

#include "mudd/io/file_ops.h"

namespace mudd::io {

// Compute a * b and a + b; return false if 64 bits cannot represent the result.
bool multiply_checked(std::uint64_t a, std::uint64_t b, std::uint64_t* product);
bool add_checked(std::uint64_t a, std::uint64_t b, std::uint64_t* sum);

class BoundedReader {
 public:
  BoundedReader(FileOps& ops, const std::string& path);

  const std::string& path() const { return file_.path(); }
  std::uint64_t size() const { return size_; }

  // Throw FormatError unless [begin, begin + bytes) is in the file; `what` names the range in the message.
  void require(std::uint64_t begin, std::uint64_t bytes, const std::string& what) const;
  void read(std::uint64_t begin, void* data, std::uint64_t bytes, const std::string& what) const;
  std::uint64_t read_u64(std::uint64_t begin, const std::string& what) const;  // little-endian
  [[noreturn]] void refuse(std::uint64_t offset, const std::string& reason) const;

 private:
  File file_;
  std::uint64_t size_;
};

}  // namespace mudd::io
