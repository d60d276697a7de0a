#include "mudd/base/isa.h"

#include <cstdlib>
#include <cstring>

#include "mudd/base/check.h"
#include "mudd/base/name_table.h"
#include "mudd/base/test_build.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <cstdio>
#include <fstream>
#endif

namespace mudd {
namespace {

constexpr const char* kEmulations[] = {"emu_avx512_bf16", "emu_amx_bf16"};
#if defined(__aarch64__)
constexpr const char* kNames[] = {"portable", "neon"};
#else
constexpr const char* kNames[] = {"portable", "avx2", "avx512", "avx512_bf16", "amx_bf16"};
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

// The parts of ARM's servers and of the Raspberry Pi, by their number in the register MIDR.
struct ArmPart {
  unsigned long number;
  const char* name;
};
constexpr ArmPart kParts[] = {{0xd08, "Cortex-A72"},  {0xd0b, "Cortex-A76"},  {0xd0c, "Neoverse N1"},
                              {0xd40, "Neoverse V1"}, {0xd49, "Neoverse N2"}, {0xd4f, "Neoverse V2"}};
constexpr unsigned long kArm = 0x41;

// Return the number after the first `key` of /proc/cpuinfo, or 0.
unsigned long cpu_fact(const std::string& key) {
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);)
    if (const size_t colon = line.find(':'); colon != line.npos && line.compare(0, key.size(), key) == 0)
      return std::strtoul(line.c_str() + colon + 1, nullptr, 0);
  return 0;
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
  return static_cast<Isa>(position_of(kNames, name, "isa", "MUDD_MAX_ISA"));
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
  const unsigned long maker = cpu_fact("CPU implementer"), number = cpu_fact("CPU part");
  if (maker == 0) return "";
  for (const ArmPart& part : kParts)
    if (maker == kArm && part.number == number) return std::string("ARM ") + part.name;
  char text[64];
  std::snprintf(text, sizeof text, "aarch64 CPU (maker 0x%lx, part 0x%lx)", maker, number);
  return text;
#else
  return "";
#endif
}

}  // namespace mudd
