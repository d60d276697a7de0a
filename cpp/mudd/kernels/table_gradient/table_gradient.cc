#include "mudd/kernels/table_gradient/table_gradient.h"

namespace mudd {

std::span<const KernelRow<TableGradientKernels>> table_gradient_rows() {
  static const KernelRow<TableGradientKernels> rows[] = {MUDD_KERNEL_ROWS(table_gradient_f32)};
  return rows;
}

}  // namespace mudd
