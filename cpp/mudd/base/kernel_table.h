// The kernel table: each op lists its rows in kernels.inc, best level first; kernel_rows.inc makes the list
// declarations (op header) and the rows (op .cc), which the lookup, tests and benches walk.
#pragma once

#include <cstring>
#include <span>

#include "mudd/base/check.h"
#include "mudd/base/isa.h"
#include "mudd/base/test_build.h"

// How the rows of a level are declared: emulations are in the testing build alone.
#define MUDD_ROW_portable
#define MUDD_ROW_avx2
#define MUDD_ROW_avx512
#define MUDD_ROW_avx512_bf16
#define MUDD_ROW_amx_bf16
#define MUDD_ROW_emu16 MUDD_TEST_BUILD
#define MUDD_ROW_emu_avx512_bf16 MUDD_TEST_BUILD
#define MUDD_ROW_emu_amx_bf16 MUDD_TEST_BUILD

namespace mudd {

// One row: a struct of function pointers K built for one level.
// "emu16" rows are the 16-lane emulation of the AVX-512 code: built for the baseline, null in the product.
template <class K>
struct KernelRow {
  const char* name;   // rms_norm_f32
  const char* level;  // portable, avx2, avx512, emu16, ...
  const K* kernels;

  bool emulated() const { return std::strncmp(level, "emu", 3) == 0; }
  bool runs_here() const { return emulated() || parse_isa(level) <= detected_isa(); }
};

// The best row that the active level allows; chosen once, when an op is planned. Where tests ask for an emulation,
// its row.
template <class K>
const K& choose(std::span<const KernelRow<K>> rows) {
  if (const char* emulation = emulated_level())
    for (const KernelRow<K>& row : rows)
      if (std::strcmp(row.level, emulation) == 0) return *row.kernels;
  for (const KernelRow<K>& row : rows)
    if (!row.emulated() && parse_isa(row.level) <= active_isa()) return *row.kernels;
  fail("kernel_table", rows[0].name, ": no row for level ", name_of(active_isa()));
}

}  // namespace mudd
