// A digest of 128 bits of an array's bytes, the same on every CPU, at every level and thread count.
//
// Each block of 64 KiB is hashed alone, by eight chains over its 64-bit integers x: h = rotate((h ^ x) * odd).
// Each step of a chain is a bijection, so arrays that differ in one x always differ in their digests. Other arrays
// have equal digests with a probability of about 2^-64. The hash is not cryptographic.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "mudd/base/types.h"

namespace mudd {

using Digest = std::array<uint64_t, 2>;

// Return a copy of the elements, row by row.
std::vector<std::byte> bytes_of(const Tensor& values);
// Return the digest of the elements, row by row, with their count of bytes.
Digest digest_of(const Tensor& values);
// Return the same of some rows.
Digest rows_digest(const Tensor& values, int64_t first, int64_t count);

}  // namespace mudd
