#include "mudd/data/token_file.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "mudd/base/check.h"
#include "mudd/io/crc32c.h"

namespace mudd {
namespace {

int64_t blocks_in(int64_t bytes) { return (bytes + kTokenBlockBytes - 1) / kTokenBlockBytes; }

TokenFileSpec checked(TokenFileSpec spec) {
  check(spec.width == 2 || spec.width == 4, "token_file", "width: expected 2 or 4 bytes, got ", spec.width);
  check(spec.offset >= 0, "token_file", "offset: expected at least 0, got ", spec.offset);
  check(spec.count >= 0 && spec.count <= (std::numeric_limits<int64_t>::max() - spec.offset) / spec.width,
        "token_file", "count: expected a number of ids that fits a file, got ", spec.count);
  check(spec.vocab_size >= 1 && spec.vocab_size <= std::numeric_limits<int32_t>::max(), "token_file",
        "vocab_size: expected 1 to 2147483647, got ", spec.vocab_size);
  const int64_t blocks = blocks_in(spec.count * spec.width);
  check(static_cast<int64_t>(spec.block_crcs.size()) == blocks, "token_file", "block_crcs: expected ", blocks,
        " checksums for ", spec.count, " ids, got ", spec.block_crcs.size());
  return spec;
}

template <class Id>
void widen(const uint8_t* bytes, int64_t n, int32_t* out, uint32_t& largest) {
  for (int64_t i = 0; i < n; ++i) {
    Id id;
    std::memcpy(&id, bytes + i * static_cast<int64_t>(sizeof(Id)), sizeof(Id));
    largest = std::max(largest, static_cast<uint32_t>(id));
    out[i] = static_cast<int32_t>(id);
  }
}

}  // namespace

TokenFile::TokenFile(TokenFileSpec spec)
    : spec_(checked(std::move(spec))),
      file_(io::File::open_read(io::files(), spec_.path)),
      buffer_(new uint8_t[kBufferBytes]),
      verified_(spec_.block_crcs.size(), 0) {
  const int64_t size = static_cast<int64_t>(file_.size());
  const int64_t end = spec_.offset + spec_.count * spec_.width;
  if (size < end) {
    throw FormatError(spec_.path, size, "file is truncated: its token ids need " + std::to_string(end) + " bytes");
  }
}

void TokenFile::verify_block(int64_t block) {
  const int64_t begin = block * kTokenBlockBytes;
  const int64_t end = std::min(begin + kTokenBlockBytes, spec_.count * spec_.width);
  uint32_t crc = 0;
  for (int64_t at = begin; at < end; at += kBufferBytes) {
    const int64_t bytes = std::min(kBufferBytes, end - at);
    file_.read_exact(buffer_.get(), static_cast<size_t>(bytes), static_cast<uint64_t>(spec_.offset + at));
    crc = io::crc32c(buffer_.get(), static_cast<size_t>(bytes), crc);
  }
  const size_t i = static_cast<size_t>(block);
  if (crc != spec_.block_crcs[i]) {
    throw FormatError(spec_.path, spec_.offset + begin,
                      "block " + std::to_string(block) + " of token ids is damaged: its CRC-32C is " +
                          std::to_string(crc) + " and should be " + std::to_string(spec_.block_crcs[i]));
  }
  verified_[i] = 1;
  ++verified_count_;
}

void TokenFile::verify_all() {
  for (size_t block = 0; block < verified_.size(); ++block) {
    if (!verified_[block]) verify_block(static_cast<int64_t>(block));
  }
}

void TokenFile::read(int64_t first, int64_t n, int32_t* out) {
  check(first >= 0 && n >= 0 && first <= spec_.count - n, "token_file", "range: expected tokens within [0, ",
        spec_.count, "), got ", n, " from ", first);
  if (n == 0) return;
  const int64_t last_block = (first + n - 1) * spec_.width / kTokenBlockBytes;
  for (int64_t block = first * spec_.width / kTokenBlockBytes; block <= last_block; ++block) {
    if (!verified_[static_cast<size_t>(block)]) verify_block(block);
  }
  for (int64_t done = 0; done < n;) {
    const int64_t part = std::min(n - done, kBufferBytes / spec_.width);
    const int64_t at = spec_.offset + (first + done) * spec_.width;
    file_.read_exact(buffer_.get(), static_cast<size_t>(part * spec_.width), static_cast<uint64_t>(at));
    uint32_t largest = 0;
    if (spec_.width == 2) {
      widen<uint16_t>(buffer_.get(), part, out + done, largest);
    } else {
      widen<uint32_t>(buffer_.get(), part, out + done, largest);
    }
    if (largest >= static_cast<uint64_t>(spec_.vocab_size)) {
      throw FormatError(spec_.path, at,
                        "token id " + std::to_string(largest) + " is outside the vocabulary of " +
                            std::to_string(spec_.vocab_size) + " (tokens " + std::to_string(first + done) +
                            " to " + std::to_string(first + done + part) + ")");
    }
    done += part;
  }
}

}  // namespace mudd
