// Bytes with a checksum for every block: the tensors in a checkpoint's shards. One pass writes a block and
// computes its checksum while it is in cache; one pass reads it back and compares.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mudd/io/bounded_reader.h"
#include "mudd/io/safetensors.h"

namespace mudd::io {

inline constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

// Return the CRC-32C of each block of kBlockBytes of `data`, the last one shorter; none for no bytes.
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

// Write a safetensors file through `file`, which is new and empty; only a source with `read` is copied, a block
// at a time. Does not sync. Calls `ops.reached("after_block")` after each block.
ShardRecord write_shard(FileOps& ops, File& file, const std::vector<TensorSource>& tensors,
                        const Metadata& metadata);

// A range of a file with the expected checksums of its blocks. `label` names it in messages.
struct CheckedRange {
  std::string label;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::vector<std::uint32_t> crcs;
};

// Read a range block by block and compare each. FormatError names the label, the block and both checksums, at
// the offset of the block. Return the CRC of the whole range.
std::uint32_t read_checked(const BoundedReader& reader, const CheckedRange& range);

// Read bytes [skip, skip + bytes) of a range into `data`. Every block with one of them is read and compared
// completely; errors as in read_checked.
void read_checked_part(const BoundedReader& reader, const CheckedRange& range, std::uint64_t skip,
                       std::uint64_t bytes, void* data);

// Verify a whole file: size, every range (sorted, disjoint), the bytes between ranges, and the checksum of the
// file.
void verify_file(FileOps& ops, const std::string& path, std::uint64_t bytes, std::uint32_t crc,
                 std::vector<CheckedRange> ranges);

}  // namespace mudd::io
