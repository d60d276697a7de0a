#include "mudd/io/checked_blocks.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <tuple>

#include "mudd/io/crc32c.h"

namespace mudd::io {
namespace {

std::string hex(std::uint32_t value) {
  char text[12];
  std::snprintf(text, sizeof text, "%08x", static_cast<unsigned>(value));
  return text;
}

// Call visit(index, begin, bytes) for each block of [0, bytes).
template <typename Visit>
void for_each_block(std::uint64_t bytes, Visit&& visit) {
  std::size_t index = 0;
  for (std::uint64_t begin = 0; begin < bytes; begin += kBlockBytes, ++index) {
    visit(index, begin, std::min(kBlockBytes, bytes - begin));
  }
}

// Return the checksum of bytes without a stored checksum: header and gaps.
std::uint32_t crc_of_range(const BoundedReader& reader, std::uint64_t begin, std::uint64_t bytes,
                           std::uint32_t before) {
  reader.require(begin, bytes, "the rest of the file");
  std::vector<char> buffer(std::min(kBlockBytes, bytes));
  for_each_block(bytes, [&](std::size_t, std::uint64_t at, std::uint64_t size) {
    reader.read(begin + at, buffer.data(), size, "the rest of the file");
    before = crc32c(buffer.data(), size, before);
  });
  return before;
}

// Return the size of a range that is in the file and has a checksum for each block.
std::uint64_t checked_size(const BoundedReader& reader, const CheckedRange& range) {
  if (range.end < range.begin) reader.refuse(range.begin, range.label + " has a negative size");
  const std::uint64_t bytes = range.end - range.begin;
  reader.require(range.begin, bytes, range.label);
  if (range.crcs.size() != bytes / kBlockBytes + (bytes % kBlockBytes != 0 ? 1 : 0)) {
    reader.refuse(range.begin, range.label + " has " + std::to_string(range.crcs.size()) +
                                   " block checksums for its " + std::to_string(bytes) + " bytes");
  }
  return bytes;
}

// Read block `index` of a range, `size` bytes from byte `at` of it, and compare; return its CRC.
std::uint32_t read_block(const BoundedReader& reader, const CheckedRange& range, std::size_t index,
                         std::uint64_t at, std::uint64_t size, char* data) {
  reader.read(range.begin + at, data, size, range.label);
  const std::uint32_t crc = crc32c(data, size);
  if (crc != range.crcs[index]) {
    reader.refuse(range.begin + at, range.label + ", block " + std::to_string(index) + ": CRC-32C " + hex(crc) +
                                        " where the manifest says " + hex(range.crcs[index]));
  }
  return crc;
}

}  // namespace

std::vector<std::uint32_t> block_crcs(const void* data, std::uint64_t bytes) {
  std::vector<std::uint32_t> crcs;
  crcs.reserve((bytes + kBlockBytes - 1) / kBlockBytes);
  for_each_block(bytes, [&](std::size_t, std::uint64_t begin, std::uint64_t size) {
    crcs.push_back(crc32c(static_cast<const char*>(data) + begin, size));
  });
  return crcs;
}

ShardRecord write_shard(FileOps& ops, File& file, const std::vector<TensorSource>& tensors,
                        const Metadata& metadata) {
  const std::string header = safetensors_header(tensors, metadata);
  file.write_all(header.data(), header.size());
  ShardRecord record;
  record.bytes = header.size();
  record.crc = crc32c(header.data(), header.size());
  std::vector<char> own;  // a block of a source with `read`
  for (const TensorSource& source : tensors) {
    ShardRecord::Slice slice;
    slice.begin = record.bytes;
    slice.end = record.bytes + source.bytes;
    const char* data = static_cast<const char*>(source.make ? source.make() : source.data);
    for_each_block(source.bytes, [&](std::size_t, std::uint64_t begin, std::uint64_t size) {
      const char* block = data + begin;
      if (source.read) {
        own.resize(kBlockBytes);
        source.read(own.data(), size);
        block = own.data();
      }
      const std::uint32_t crc = crc32c(block, size);
      file.write_all(block, size);
      slice.crcs.push_back(crc);
      record.crc = crc32c_combine(record.crc, crc, size);
      ops.reached("after_block");
    });
    record.bytes = slice.end;
    record.slices.push_back(std::move(slice));
  }
  return record;
}

std::uint32_t read_checked(const BoundedReader& reader, const CheckedRange& range) {
  const std::uint64_t bytes = checked_size(reader, range);
  std::vector<char> buffer(std::min(kBlockBytes, bytes));
  std::uint32_t whole = 0;
  for_each_block(bytes, [&](std::size_t index, std::uint64_t at, std::uint64_t size) {
    whole = crc32c_combine(whole, read_block(reader, range, index, at, size, buffer.data()), size);
  });
  return whole;
}

void read_checked_part(const BoundedReader& reader, const CheckedRange& range, std::uint64_t skip,
                       std::uint64_t bytes, void* data) {
  const std::uint64_t all = checked_size(reader, range);
  if (skip > all || bytes > all - skip) {
    reader.refuse(range.begin, range.label + " has " + std::to_string(all) + " bytes, and bytes " +
                                   std::to_string(skip) + " to " + std::to_string(skip + bytes) + " are wanted");
  }
  std::vector<char> buffer;  // of a partially needed block
  for_each_block(all, [&](std::size_t index, std::uint64_t at, std::uint64_t size) {
    const std::uint64_t begin = std::max(at, skip), end = std::min(at + size, skip + bytes);
    if (begin >= end) return;
    char* to = static_cast<char*>(data) + (begin - skip);
    if (end - begin == size) {
      read_block(reader, range, index, at, size, to);
      return;
    }
    buffer.resize(size);
    read_block(reader, range, index, at, size, buffer.data());
    std::memcpy(to, buffer.data() + (begin - at), end - begin);
  });
}

void verify_file(FileOps& ops, const std::string& path, std::uint64_t bytes, std::uint32_t crc,
                 std::vector<CheckedRange> ranges) {
  const BoundedReader reader(ops, path);
  if (reader.size() != bytes) {
    reader.refuse(std::min(bytes, reader.size()), "the file has " + std::to_string(reader.size()) +
                                                      " bytes where the manifest says " + std::to_string(bytes));
  }
  std::sort(ranges.begin(), ranges.end(), [](const CheckedRange& a, const CheckedRange& b) {
    return std::tie(a.begin, a.end) <
           std::tie(b.begin, b.end);  // an empty range before another with the same start
  });
  std::uint64_t next = 0;
  std::uint32_t whole = 0;
  for (const CheckedRange& range : ranges) {
    if (range.begin < next) reader.refuse(range.begin, range.label + " overlaps the previous range");
    whole = crc_of_range(reader, next, range.begin - next, whole);
    const std::uint32_t own = read_checked(reader, range);
    whole = crc32c_combine(whole, own, range.end - range.begin);
    next = range.end;
  }
  whole = crc_of_range(reader, next, bytes - next, whole);
  if (whole != crc) {
    reader.refuse(0, "the file's CRC-32C is " + hex(whole) + " where the manifest says " + hex(crc) +
                         ": its header was changed, or it belongs to another step or run");
  }
}

}  // namespace mudd::io
