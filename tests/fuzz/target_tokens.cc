// The ids of a token file in place, and the batches made of them.
#include <algorithm>

#include "fuzz.h"
#include "mudd/data/batcher.h"
#include "mudd/io/checked_blocks.h"

namespace fuzz {
namespace {

using namespace mudd;

// Input: offset, number of ids, vocabulary, sequence length, first sample, flags (1: 4 bytes an id, 2: shuffled,
// 4: a wrong checksum, 8: one checksum too many), then the file.
void run(const Bytes& input, const std::string& scratch) {
  Cursor cursor(input);
  TokenFileSpec spec;
  spec.path = scratch;
  spec.offset = cursor.take<std::int16_t>();
  spec.count = cursor.take<std::int32_t>();
  spec.vocab_size = cursor.take<std::int32_t>();
  const std::int64_t seq_len = cursor.take<std::int16_t>();
  const std::int64_t first = cursor.take<std::int64_t>();
  const auto flags = cursor.take<std::uint8_t>();
  const auto data = cursor.rest();
  write_file(scratch, data);
  spec.width = (flags & 1) != 0 ? 4 : 2;
  const std::int64_t bytes = spec.count * spec.width;
  if (bytes >= 0 && spec.offset >= 0 && spec.offset + bytes <= static_cast<std::int64_t>(data.size()))
    spec.block_crcs = io::block_crcs(data.data() + spec.offset, static_cast<std::uint64_t>(bytes));
  if ((flags & 4) != 0 && !spec.block_crcs.empty()) spec.block_crcs[0] ^= 1;
  if ((flags & 8) != 0) spec.block_crcs.push_back(0);
  try {
    const std::int64_t vocab_size = spec.vocab_size;
    Batcher batcher(std::move(spec), (flags & 2) != 0 ? BatchOrder::shuffled : BatchOrder::sequential, seq_len, 7,
                    0);
    const std::size_t ids = static_cast<std::size_t>(2 * seq_len);
    std::vector<std::int32_t> inputs(ids), targets(ids);
    batcher.fill(first, 2, {inputs.data(), targets.data()});
    for (std::size_t i = 0; i < ids; ++i) {
      require(inputs[i] >= 0 && inputs[i] < vocab_size, "inputs are in the vocabulary");
      require(targets[i] >= -1 && targets[i] < vocab_size, "targets are in the vocabulary, or -1");
    }
  } catch (const Error&) {  // the caller's arguments, not the file
  }
}

}  // namespace

const Target target = {"tokens", {}, run, nullptr};

}  // namespace fuzz
