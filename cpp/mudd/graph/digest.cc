#include "mudd/graph/digest.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "mudd/base/parallel.h"

namespace mudd {
namespace {

constexpr int kLanes = 8;
constexpr int64_t kBlock = 64 << 10, kRound = kLanes * 8;
constexpr uint64_t kOdd = 0x9e3779b97f4a7c15, kOther = 0xd6e8feb86659fd93;

uint64_t mixed(uint64_t h) {
  h = (h ^ (h >> 32)) * kOther;
  h = (h ^ (h >> 29)) * kOdd;
  return h ^ (h >> 32);
}

// Return the digest of up to kBlock bytes; a last round is filled with zeros.
Digest block_digest(const std::byte* data, int64_t bytes) {
  uint64_t lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = kOdd * static_cast<uint64_t>(i + 1);
  const auto round = [&](const std::byte* from) {
    uint64_t words[kLanes];
    std::memcpy(words, from, sizeof(words));
    for (int i = 0; i < kLanes; ++i) lanes[i] = std::rotl((lanes[i] ^ words[i]) * kOdd, 31);
  };
  int64_t at = 0;
  for (; at + kRound <= bytes; at += kRound) round(data + at);
  if (at < bytes) {
    std::byte rest[kRound] = {};
    std::memcpy(rest, data + at, static_cast<size_t>(bytes - at));
    round(rest);
  }
  Digest digest = {static_cast<uint64_t>(bytes), kOther};
  for (const uint64_t lane : lanes) {
    digest[0] = mixed(digest[0] ^ lane);
    digest[1] = mixed(digest[1] * kOdd ^ std::rotl(lane, 32));
  }
  return digest;
}

Digest contiguous_digest(const std::byte* data, int64_t bytes) {
  const int64_t blocks = (bytes + kBlock - 1) / kBlock;
  std::vector<Digest> parts(static_cast<size_t>(blocks));
  parallel_for(blocks, [&](int64_t b, int) {
    parts[b] = block_digest(data + b * kBlock, std::min(kBlock, bytes - b * kBlock));
  });
  Digest total = {static_cast<uint64_t>(bytes), ~static_cast<uint64_t>(bytes)};
  for (const Digest& part : parts)
    for (int i = 0; i < 2; ++i) total[i] = mixed(total[i] * kOdd ^ part[i]);
  return total;
}

}  // namespace

std::vector<std::byte> bytes_of(const Tensor& values) {
  const int64_t row = values.cols * size_of(values.dtype), step = values.stride * size_of(values.dtype);
  std::vector<std::byte> copy(static_cast<size_t>(values.rows * row));
  for (int64_t r = 0; r < values.rows; ++r)
    std::memcpy(copy.data() + r * row, static_cast<const std::byte*>(values.data) + r * step,
                static_cast<size_t>(row));
  return copy;
}

Digest digest_of(const Tensor& values) {
  if (values.stride == values.cols || values.rows == 1)
    return contiguous_digest(static_cast<const std::byte*>(values.data),
                             values.rows * values.cols * size_of(values.dtype));
  const std::vector<std::byte> copy = bytes_of(values);
  return contiguous_digest(copy.data(), std::ssize(copy));
}

Digest rows_digest(const Tensor& values, int64_t first, int64_t count) {
  Tensor some = values;
  some.data = static_cast<std::byte*>(values.data) + first * values.stride * size_of(values.dtype);
  some.rows = count;
  return digest_of(some);
}

}  // namespace mudd
