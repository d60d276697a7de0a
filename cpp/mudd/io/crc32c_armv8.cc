// Built with -march=armv8-a+crc and called only if the CPU has these instructions. Sealed like crc32c_sse42.cc.
#if defined(__aarch64__)
#include <arm_acle.h>

#include <cstddef>
#include <cstdint>

namespace mudd::io {

std::uint32_t crc32c_instruction(const void* data, std::size_t bytes, std::uint32_t before) {
  const auto* next = static_cast<const unsigned char*>(data);
  std::uint32_t crc = ~before;
  for (; bytes >= 8; bytes -= 8, next += 8) {
    std::uint64_t word;
    __builtin_memcpy(&word, next, 8);
    crc = __crc32cd(crc, word);
  }
  for (; bytes > 0; --bytes, ++next) crc = __crc32cb(crc, *next);
  return ~crc;
}

}  // namespace mudd::io

#endif
