#include "coverage.h"

#include <array>
#include <cstdint>

extern "C" const char __executable_start;  // of the linker: addresses relative to it do not change between runs

namespace fuzz {
namespace {

constexpr std::size_t kSlots = 1 << 15;
std::array<std::uint8_t, kSlots> counts;  // of this run
std::array<std::uint8_t, kSlots> seen;    // classes of counts of all runs, as bits
std::uintptr_t previous = 0;

// 1, 2, 3, 4-7, 8-15, 16-31, 32-127, more: one bit each.
std::uint8_t class_of(std::uint8_t count) {
  if (count == 0) return 0;
  if (count <= 3) return static_cast<std::uint8_t>(1 << (count - 1));
  int bit = 3;
  for (int limit = 8; bit < 6 && count >= limit; limit *= 2) ++bit;
  return static_cast<std::uint8_t>(1 << (count >= 128 ? 7 : bit));
}

}  // namespace

void start_coverage() {
  counts.fill(0);
  previous = 0;
}

bool end_coverage() {
  bool fresh = false;
  for (std::size_t i = 0; i < kSlots; ++i) {
    if (counts[i] == 0) continue;
    const std::uint8_t bits = class_of(counts[i]);
    fresh = fresh || (bits & ~seen[i]) != 0;
    seen[i] = static_cast<std::uint8_t>(seen[i] | bits);
  }
  return fresh;
}

std::size_t edges_reached() {
  std::size_t reached = 0;
  for (const std::uint8_t bits : seen) reached += bits != 0;
  return reached;
}

}  // namespace fuzz

// Called by the compiler's instrumentation at every basic block. Must not be instrumented itself.
extern "C" __attribute__((no_sanitize("address", "undefined"))) void __sanitizer_cov_trace_pc() {
  const auto here = (reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)) -
                     reinterpret_cast<std::uintptr_t>(&__executable_start)) *
                        0x9E3779B97F4A7C15u >>
                    20;
  std::uint8_t& count = fuzz::counts.data()[(here ^ fuzz::previous) % fuzz::kSlots];
  if (count != 255) ++count;
  fuzz::previous = here >> 1;
}
