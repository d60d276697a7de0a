// The kernel table: a row for each level that a kernel is built for, best level first. MUDD_DECLARE_KERNELS (in
// the header of an op) and MUDD_KERNEL_ROWS (in its .cc) are the only list of levels; the lookup, tests and
// benchmarks iterate over the rows.
#pragma once

#include <cstring>
#include <span>

#include "mudd/base/check.h"
#include "mudd/base/isa.h"
#include "mudd/base/test_build.h"

// Declare `name`, a struct of function pointers, at every level that a kernel-inl.h is built for. Emulations
// exist in the testing build only. CPUs that are neither x86-64 nor aarch64 have only them and portable.
#define MUDD_DECLARE_AT(level, Kernels, name) \
  namespace level {                           \
  extern const Kernels name;                  \
  }
#define MUDD_DECLARE_EMULATED(level, Kernels, name) \
  namespace level {                                 \
  MUDD_TEST_BUILD extern const Kernels name;        \
  }
#define MUDD_KERNEL_ROW(name, level) {#name, #level, &level::name}
#define MUDD_EMULATED_ROWS(name) MUDD_KERNEL_ROW(name, emu_avx512_bf16), MUDD_KERNEL_ROW(name, emu_amx_bf16)

#if defined(__x86_64__)
#define MUDD_DECLARE_KERNELS(Kernels, name) \
  MUDD_DECLARE_AT(avx512, Kernels, name)    \
  MUDD_DECLARE_AT(avx2, Kernels, name)      \
  MUDD_DECLARE_AT(portable, Kernels, name)
// The same at the levels with hardware bf16, which have a <level>.cc each.
#define MUDD_DECLARE_UNIT_KERNELS(Kernels, name)        \
  MUDD_DECLARE_AT(amx_bf16, Kernels, name)              \
  MUDD_DECLARE_AT(avx512_bf16, Kernels, name)           \
  MUDD_DECLARE_EMULATED(emu_avx512_bf16, Kernels, name) \
  MUDD_DECLARE_EMULATED(emu_amx_bf16, Kernels, name)
#define MUDD_KERNEL_ROWS(name) \
  MUDD_KERNEL_ROW(name, avx512), MUDD_KERNEL_ROW(name, avx2), MUDD_KERNEL_ROW(name, portable)
#define MUDD_UNIT_KERNEL_ROWS(name) \
  MUDD_KERNEL_ROW(name, amx_bf16), MUDD_KERNEL_ROW(name, avx512_bf16), MUDD_EMULATED_ROWS(name)
#else
#if defined(__aarch64__)
#define MUDD_DECLARE_KERNELS(Kernels, name) \
  MUDD_DECLARE_AT(neon, Kernels, name)      \
  MUDD_DECLARE_AT(portable, Kernels, name)
#define MUDD_KERNEL_ROWS(name) MUDD_KERNEL_ROW(name, neon), MUDD_KERNEL_ROW(name, portable)
#else
#define MUDD_DECLARE_KERNELS(Kernels, name) MUDD_DECLARE_AT(portable, Kernels, name)
#define MUDD_KERNEL_ROWS(name) MUDD_KERNEL_ROW(name, portable)
#endif
#define MUDD_DECLARE_UNIT_KERNELS(Kernels, name)        \
  MUDD_DECLARE_EMULATED(emu_avx512_bf16, Kernels, name) \
  MUDD_DECLARE_EMULATED(emu_amx_bf16, Kernels, name)
#define MUDD_UNIT_KERNEL_ROWS(name) MUDD_EMULATED_ROWS(name)
#endif

namespace mudd {

// One row: a struct of function pointers K built for one level.
// "emu_..." rows emulate hardware bf16: built for the baseline, null outside the testing build.
template <class K>
struct KernelRow {
  const char* name;   // rms_norm_f32
  const char* level;  // portable, avx2, avx512, neon, emu_amx_bf16, ...
  const K* kernels;

  bool emulated() const { return std::strncmp(level, "emu", 3) == 0; }
  bool runs_here() const { return emulated() || parse_isa(level) <= detected_isa(); }
};

// Return the best row that the active level allows, or the emulation that a test requests. Called once, when an
// op is planned.
template <class K>
const K& choose(std::span<const KernelRow<K>> rows) {
  if (const char* emulation = emulated_level())
    for (const KernelRow<K>& row : rows)
      if (std::strcmp(row.level, emulation) == 0) return *row.kernels;
  for (const KernelRow<K>& row : rows)
    if (!row.emulated() && parse_isa(row.level) <= active_isa()) return *row.kernels;
  fail("kernel_table", rows[0].name, ": no kernel for level ", name_of(active_isa()));
}

}  // namespace mudd
