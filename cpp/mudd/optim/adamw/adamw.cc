#include "mudd/optim/adamw/adamw.h"

namespace mudd {

std::span<const KernelRow<UpdateKernels>> adamw_rows() {
  static const KernelRow<UpdateKernels> rows[] = {
#define MUDD_KERNEL(name, level) {#name, #level, &level::name},
#include "mudd/optim/adamw/kernels.inc"
#undef MUDD_KERNEL
  };
  return rows;
}

}  // namespace mudd
