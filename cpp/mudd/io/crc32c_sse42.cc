// Built with -msse4.2 and called only if the CPU has it. Sealed like a kernel: raw pointers in its interface,
// no templates or inline functions of other files, so no code built with this flag can leak.
#if defined(__x86_64__)
#include <nmmintrin.h>

#include <cstddef>
#include <cstdint>

namespace mudd::io {

std::uint32_t crc32c_instruction(const void* data, std::size_t bytes, std::uint32_t before) {
  const auto* next = static_cast<const unsigned char*>(data);
  std::uint64_t crc = static_cast<std::uint32_t>(~before);
  for (; bytes >= 8; bytes -= 8, next += 8) {
    std::uint64_t word;
    __builtin_memcpy(&word, next, 8);
    crc = _mm_crc32_u64(crc, word);
  }
  auto rest = static_cast<std::uint32_t>(crc);
  for (; bytes > 0; --bytes, ++next) rest = _mm_crc32_u8(rest, *next);
  return ~rest;
}

}  // namespace mudd::io

#endif
