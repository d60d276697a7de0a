// A file with checksums for its blocks, as a manifest describes it: sizes and ranges come from the input too.
#include <algorithm>
#include <utility>

#include "fuzz.h"
#include "mudd/io/checked_blocks.h"
#include "mudd/io/crc32c.h"
#include "mudd/io/file_ops.h"

namespace fuzz {
namespace {

using namespace mudd::io;

// Input: number of ranges, then for each its begin, its length, flags (1: a wrong checksum, 2: one too many,
// 4: an end before its begin, 8: beyond all bounds), then flags of the whole file (1: wrong size, 2: wrong
// checksum), then the file.
void run(const Bytes& input, const std::string& scratch) {
  Cursor cursor(input);
  struct Asked {
    std::uint16_t begin, bytes;
    std::uint8_t flags;
  };
  std::vector<Asked> asked(cursor.take<std::uint8_t>() % 8);
  for (Asked& one : asked)
    one = {cursor.take<std::uint16_t>(), cursor.take<std::uint16_t>(), cursor.take<std::uint8_t>()};
  const auto flags = cursor.take<std::uint8_t>();
  const auto data = cursor.rest();
  write_file(scratch, data);
  bool right = (flags & 3) == 0;
  std::vector<CheckedRange> ranges;
  for (const Asked& one : asked) {
    CheckedRange range{"range", one.begin, std::uint64_t{one.begin} + one.bytes, {}};
    const bool inside = range.end <= data.size();
    if (inside) range.crcs = block_crcs(data.data() + range.begin, one.bytes);
    if ((one.flags & 1) != 0 && !range.crcs.empty()) range.crcs[0] ^= 1;
    if ((one.flags & 2) != 0) range.crcs.push_back(0);
    if ((one.flags & 4) != 0) std::swap(range.begin, range.end);
    if ((one.flags & 8) != 0) range.end = ~std::uint64_t{0} - one.bytes;
    right = right && inside && (one.flags & 10) == 0 && ((one.flags & 1) == 0 || range.crcs.empty()) &&
            ((one.flags & 4) == 0 || one.bytes == 0);
    ranges.push_back(std::move(range));
  }
  verify_file(posix_files(), scratch, data.size() + (flags & 1),
              crc32c(data.data(), data.size()) ^ ((flags & 2) >> 1), ranges);
  require(right, "only a file that fits its description verifies");
  Bytes read(data.size());
  const BoundedReader reader(posix_files(), scratch);
  for (const CheckedRange& range : ranges) {
    const std::uint64_t bytes = range.end - range.begin;
    for (const auto& [skip, count] : {std::pair{std::uint64_t{0}, bytes}, std::pair{bytes / 3, bytes / 2}}) {
      read_checked_part(reader, range, skip, count, read.data());
      const auto begin = data.begin() + static_cast<std::ptrdiff_t>(range.begin + skip);
      require(std::equal(begin, begin + static_cast<std::ptrdiff_t>(count), read.begin()),
              "a part of a range that verifies is read as it is");
    }
  }
}

}  // namespace

const Target target = {"checked", {}, run, nullptr};

}  // namespace fuzz
