#include "mudd/base/isa.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "mudd/base/check.h"
#include "mudd/base/name_table.h"
#include "mudd/base/test_build.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <fstream>

#include "mudd/base/arm_cpu.h"
#endif

namespace mudd {
namespace {

constexpr const char* kEmulations[] = {"emu_avx512_bf16", "emu_amx_bf16"};
constexpr const char* kX86Names[] = {"portable", "avx2", "avx512", "avx512_bf16", "amx_bf16"};
constexpr const char* kArmNames[] = {"portable", "neon"};
#if defined(__aarch64__)
constexpr auto& kNames = kArmNames;
constexpr auto& kOtherNames = kX86Names;
constexpr const char* kOtherCpus = "x86-64";
#else
constexpr auto& kNames = kX86Names;
constexpr auto& kOtherNames = kArmNames;
constexpr const char* kOtherCpus = "64-bit ARM";
#endif

#if defined(__x86_64__)
struct Regs {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Regs cpuid(unsigned leaf, unsigned sub) {
  Regs r;
  __get_cpuid_count(leaf, sub, &r.a, &r.b, &r.c, &r.d);
  return r;
}

unsigned long long xcr0() {
  unsigned lo = 0, hi = 0;
  __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return (static_cast<unsigned long long>(hi) << 32) | lo;
}

// Linux enables the AMX tile registers only at the request of the process.
bool ask_for_amx() {
  constexpr int kArchReqXcompPerm = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kTileData) == 0;
}

bool bit(unsigned reg, int i) { return (reg >> i) & 1u; }

Isa detect() {
  const Regs one = cpuid(1, 0);
  if (!bit(one.c, 27) || !bit(one.c, 28)) return Isa::portable;  // OSXSAVE, AVX
  const unsigned long long state = xcr0();
  const Regs seven = cpuid(7, 0), seven_one = cpuid(7, 1);
  const bool ymm = (state & 0x6) == 0x6;
  const bool avx2 = ymm && bit(one.c, 12) && bit(one.c, 29) && bit(seven.b, 5);  // FMA, F16C, AVX2
  if (!avx2) return Isa::portable;
  const bool zmm = (state & 0xe6) == 0xe6;
  const bool avx512 = zmm && bit(seven.b, 16) && bit(seven.b, 17) && bit(seven.b, 30) && bit(seven.b, 31);
  if (!avx512) return Isa::avx2;
  const bool dot_bf16 = bit(seven_one.a, 5);
  if (!dot_bf16) return Isa::avx512;
  const bool tiles = (state & 0x60000) == 0x60000 && bit(seven.d, 22) && bit(seven.d, 24);
  return tiles && ask_for_amx() ? Isa::amx_bf16 : Isa::avx512_bf16;
}
#elif defined(__aarch64__)
Isa detect() { return Isa::neon; }  // a part of the base instructions, which the portable kernels use too

std::string text_in(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
#else
Isa detect() { return Isa::portable; }
#endif

Isa read_cap() {
  const char* text = std::getenv("MUDD_MAX_ISA");
  if (text == nullptr || *text == '\0') return detected_isa();
  const Isa cap = parse_isa(text);
  return cap < detected_isa() ? cap : detected_isa();
}

const char* read_emulation() {
  const char* text = std::getenv("MUDD_EMULATE");
  if (text == nullptr || *text == '\0') return nullptr;
  check(testing::linked(), "isa", "MUDD_EMULATE=", text, ": only the testing build has emulations");
  return kEmulations[position_of(kEmulations, text, "isa", "MUDD_EMULATE")];
}

}  // namespace

const char* name_of(Isa level) { return kNames[static_cast<int>(level)]; }

Isa parse_isa(const std::string& name) {
  try {
    return static_cast<Isa>(position_of(kNames, name, "isa", "MUDD_MAX_ISA"));
  } catch (const Error& error) {
    if (std::find(std::begin(kOtherNames), std::end(kOtherNames), name) == std::end(kOtherNames)) throw;
    throw Error(std::string(error.what()) + ", a level of " + kOtherCpus);
  }
}

Isa detected_isa() {
  static const Isa level = detect();
  return level;
}

Isa active_isa() {
  static const Isa level = read_cap();
  return level;
}

const char* emulated_level() {
  static const char* const level = read_emulation();
  return level;
}

std::string cpu_name() {
#if defined(__x86_64__)
  char text[49] = {};
  for (unsigned i = 0; i < 3; ++i) {
    const Regs r = cpuid(0x80000002u + i, 0);
    std::memcpy(text + 16 * i, &r, 16);
  }
  std::string name(text);
  while (!name.empty() && name.back() == ' ') name.pop_back();
  return name;
#elif defined(__aarch64__)
  return arm_cpu_name(text_in("/proc/cpuinfo"), text_in("/proc/device-tree/model"));
#else
  return "";
#endif
}

}  // namespace mudd
