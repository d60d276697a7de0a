// The kernel-table rows that the active level chooses, by name (mc.isa(detail=True)).
#pragma once

#include <span>

#include "mudd/base/kernel_table.h"

namespace mudd {

// A row without its functions: the kernel (gemm_bf16) and its level (avx512_bf16).
struct KernelName {
  const char* name;
  const char* level;
};

// Return the name of the row that choose() returns.
template <class K>
KernelName chosen(std::span<const KernelRow<K>> rows) {
  const K* best = &choose(rows);
  for (const KernelRow<K>& row : rows)
    if (row.kernels == best) return {row.name, row.level};
  fail("kernel_table", rows[0].name, ": the chosen row is not in its table");
}

}  // namespace mudd
