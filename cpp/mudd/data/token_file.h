// Token ids of one split, read in place from a contiguous range of a file: the ids dataset of the HDF5 cache,
// whose byte offset comes from `_h5`. This file does not use HDF5.
//
// Reads are positional (pread from the page cache, about a microsecond a sequence) instead of mapped: a file that
// shrinks is then a FormatError and not a SIGBUS. Every block of 1 MiB is compared with its CRC-32C before its
// first id is used; every id is compared with the vocabulary each time it is read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mudd/data/token_ids.h"
#include "mudd/io/file_ops.h"

namespace mudd {

struct TokenFileSpec {
  std::string path;
  int64_t offset = 0;                // of the first id, in bytes from the start of the file
  int64_t count = 0;                 // ids
  int width = 2;                     // bytes of an id: 2 (uint16) or 4 (uint32), little endian
  int64_t vocab_size = 0;            // ids are in [0, vocab_size)
  std::vector<uint32_t> block_crcs;  // one for each block of kTokenBlockBytes, the last one shorter
};

constexpr int64_t kTokenBlockBytes = int64_t{1} << 20;

class TokenFile final : public TokenIds {
 public:
  // Open the file and check that [offset, offset + count * width) is inside it. Error for a bad spec, IoError
  // if the file cannot be opened, FormatError if it is shorter than the spec.
  explicit TokenFile(TokenFileSpec spec);

  int64_t count() const { return spec_.count; }
  int64_t vocab_size() const override { return spec_.vocab_size; }
  const std::string& path() const { return spec_.path; }

  // Set out[i] to the id of token first + i for i in [0, n). Allocates nothing. FormatError for a damaged
  // block, a file that has shrunk, or an id outside the vocabulary. One caller at a time (blocks are marked as
  // verified).
  void read(int64_t first, int64_t n, int32_t* out) override;

  // Compare every block that was not compared yet.
  void verify_all();

  int64_t blocks_verified() const { return verified_count_; }

 private:
  void verify_block(int64_t block);

  static constexpr int64_t kBufferBytes = int64_t{1} << 16;

  TokenFileSpec spec_;
  io::File file_;
  std::unique_ptr<uint8_t[]> buffer_;  // kBufferBytes
  std::vector<uint8_t> verified_;      // one flag for each block
  int64_t verified_count_ = 0;
};

}  // namespace mudd
