#include "mudd/io/crc32c.h"

#include <array>
#include <cstring>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace mudd::io {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78u;  // bit 31 is x^0

// table[k][b]: the remainder of byte b followed by k zero bytes, so eight bytes are folded at once.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? kPolynomial : 0u);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t crc = tables[k - 1][byte];
      tables[k][byte] = (crc >> 8) ^ tables[0][crc & 0xFFu];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

// Return the product of two polynomials modulo the CRC polynomial, in reflected order (bit 31 is x^0).
std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1u) != 0 ? kPolynomial : 0u);
  }
  return product;
}

}  // namespace

std::uint32_t crc32c_portable(const void* data, std::size_t bytes, std::uint32_t before) {
  const auto* next = static_cast<const unsigned char*>(data);
  std::uint32_t crc = ~before;
  for (; bytes >= 8; bytes -= 8, next += 8) {
    std::uint32_t low = 0;
    std::memcpy(&low, next, 4);  // little-endian, as the reflected CRC requires
    low ^= crc;
    crc = kTables[7][low & 0xFFu] ^ kTables[6][(low >> 8) & 0xFFu] ^ kTables[5][(low >> 16) & 0xFFu] ^
          kTables[4][low >> 24] ^ kTables[3][next[4]] ^ kTables[2][next[5]] ^ kTables[1][next[6]] ^
          kTables[0][next[7]];
  }
  for (; bytes > 0; --bytes, ++next) crc = (crc >> 8) ^ kTables[0][(crc ^ *next) & 0xFFu];
  return ~crc;
}

#if defined(__x86_64__)
bool crc32c_has_instruction() {
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  return has;
}
#elif defined(__aarch64__)
bool crc32c_has_instruction() {
  static const bool has = (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
  return has;
}
#else
bool crc32c_has_instruction() { return false; }
std::uint32_t crc32c_instruction(const void* data, std::size_t bytes, std::uint32_t before) {
  return crc32c_portable(data, bytes, before);
}
#endif

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before) {
  return crc32c_has_instruction() ? crc32c_instruction(data, bytes, before) : crc32c_portable(data, bytes, before);
}

std::uint32_t crc32c_combine(std::uint32_t crc_a, std::uint32_t crc_b, std::uint64_t bytes_b) {
  // Appending n zero bits multiplies the remainder by x^n; the xor constants of start and end cancel.
  std::uint32_t power = 0x80000000u >> 8;  // x^8: one byte
  std::uint32_t factor = 0x80000000u;      // x^0
  for (; bytes_b != 0; bytes_b >>= 1) {
    if ((bytes_b & 1u) != 0) factor = multiply(factor, power);
    power = multiply(power, power);
  }
  return multiply(crc_a, factor) ^ crc_b;
}

}  // namespace mudd::io
