// CRC-32C (Castagnoli): reflected polynomial 0x82F63B78, start and final xor 0xFFFFFFFF; the checksum of iSCSI
// (RFC 3720), TFRecord and this project's files. crc32c("123456789") = 0xE3069283.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mudd::io {

// Return the checksum of `bytes` bytes; `before` is the checksum of the preceding bytes (0: none).
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before = 0);

// Return the checksum of A followed by B, from crc32c(A), crc32c(B) and the length of B in bytes.
std::uint32_t crc32c_combine(std::uint32_t crc_a, std::uint32_t crc_b, std::uint64_t bytes_b);

// The two implementations, for tests; crc32c chooses one at the first call. Both accept and return the finished
// checksum.
std::uint32_t crc32c_portable(const void* data, std::size_t bytes, std::uint32_t before);
bool crc32c_has_instruction();  // crc32 of SSE4.2 or crc32cx of ARMv8
std::uint32_t crc32c_instruction(const void* data, std::size_t bytes, std::uint32_t before);

}  // namespace mudd::io
