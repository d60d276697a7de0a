// Bytes with a checksum for every block: how tensors lie in a checkpoint's shards. One pass writes a block and
// sums it while it is in cache; one pass reads it back and compares.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mudd/io/bounded_reader.h"
#include "mudd/io/safetensors.h"

namespace mudd::io {

inline constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

// The CRC-32C of each block of kBlockBytes of `data`, the last one shorter; none for no bytes.
std::vector<std::uint32_t> block_crcs(const void* data, std::uint64_t bytes);

struct ShardRecord {
  std::uint64_t bytes = 0;  // of the whole file
  std::uint32_t crc = 0;    // of the whole file
  struct Slice {
    std::uint64_t begin = 0;  // from the start of the file
    std::uint64_t end = 0;
    std::vector<std::uint32_t> crcs;
  };
  std::vector<Slice> slices;  // one for each source, in their order
};

// Writes a safetensors file through `file`, which is new and empty; nothing is copied. Does not sync.
// `ops.reached("after_block")` follows each block.
ShardRecord write_shard(FileOps& ops, File& file, const std::vector<TensorSource>& tensors,
                        const Metadata& metadata);

// A range of a file and the checksums its blocks should have. `label` names it in messages.
struct CheckedRange {
  std::string label;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::vector<std::uint32_t> crcs;
};

// Reads a range block by block, comparing each. FormatError names the label, the block and both checksums, at the
// offset of the block. Returns the CRC of the whole range.
std::uint32_t read_checked(const BoundedReader& reader, const CheckedRange& range);

// Reads bytes [skip, skip + bytes) of a range into `data`. Every block that holds one of them is read and compared
// whole; errors as read_checked.
void read_checked_part(const BoundedReader& reader, const CheckedRange& range, std::uint64_t skip,
                       std::uint64_t bytes, void* data);

// Reads all of a file: size, every range (sorted, apart), what lies between them, and the checksum of the whole.
void verify_file(FileOps& ops, const std::string& path, std::uint64_t bytes, std::uint32_t crc,
                 std::vector<CheckedRange> ranges);

}  // namespace mudd::io
