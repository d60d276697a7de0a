// Instruction-set levels: detected once (AMX permission included), capped by MUDD_MAX_ISA.
#pragma once

#include <string>
#include <vector>

namespace mudd {

// In order: each level includes all levels before it. A CPU has the levels of its architecture and no others.
#if defined(__aarch64__)
enum class Isa : int { portable = 0, neon = 1 };
constexpr Isa kHighestIsa = Isa::neon;
#else
enum class Isa : int { portable = 0, avx2 = 1, avx512 = 2, avx512_bf16 = 3, amx_bf16 = 4 };
constexpr Isa kHighestIsa = Isa::amx_bf16;
#endif

const char* name_of(Isa level);
Isa parse_isa(const std::string& name);  // throws Error with the list of valid names

// The lanes of fp32 sums in row kernels of every level. A run records it: other lanes mean other bits.
constexpr int kFp32Order = 16;

// Return the best level of this CPU and operating system. Detection requests the AMX permission.
Isa detected_isa();

// Return the level that kernels are chosen for: the detected one, capped by MUDD_MAX_ISA (read once per
// process). A cap above the detected level has no effect; an unknown name is an Error.
Isa active_isa();

// Return the emulated level whose kernels are chosen before all others: MUDD_EMULATE (read once per process);
// nullptr if it is not set. An Error outside the testing build.
const char* emulated_level();

// Return "AMD EPYC ..." from cpuid, or "ARM Neoverse-N1" (arm_cpu.h); empty on other CPUs.
std::string cpu_name();

}  // namespace mudd
