// Instruction-set levels: detected once (AMX permission included), capped by MUDD_MAX_ISA.
#pragma once

#include <string>
#include <vector>

namespace mudd {

// Ordered: each level has everything of the levels before it.
enum class Isa : int { portable = 0, avx2 = 1, avx512 = 2, avx512_bf16 = 3, amx_bf16 = 4 };

const char* name_of(Isa level);
Isa parse_isa(const std::string& name);  // throws Error with the list of valid names

// Lanes that row kernels of every level sum fp32 numbers in. A run records it: other lanes give other bits.
constexpr int kFp32Order = 16;

// What this CPU and operating system can run. Asking for AMX permission is part of detection.
Isa detected_isa();

// The level kernels are chosen for: detected, capped by MUDD_MAX_ISA (read once per process).
// A cap above what the CPU has leaves the detected level; an unknown name is an Error.
Isa active_isa();

// The emulated level whose rows kernels are chosen from before all others: MUDD_EMULATE (read once per process);
// nullptr where it is not set. An Error in the product.
const char* emulated_level();

// "AMD EPYC ..." from cpuid; empty where unknown.
std::string cpu_name();

}  // namespace mudd
