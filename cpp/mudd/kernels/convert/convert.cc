#include "mudd/kernels/convert/convert.h"

#include "mudd/base/row_tasks.h"

namespace mudd {

std::span<const KernelRow<ConvertKernels>> convert_rows() {
  static const KernelRow<ConvertKernels> rows[] = {
#define MUDD_KERNEL(name, level) {#name, #level, &level::name},
#include "mudd/kernels/convert/kernels.inc"
#undef MUDD_KERNEL
  };
  return rows;
}

const ConvertKernels& convert_kernels() {
  static const ConvertKernels& best = choose(convert_rows());
  return best;
}

void widen(int64_t n, const bf16* x, float* y) {
  parallel_rows(n, 1,
                [&](int64_t begin, int64_t end) { convert_kernels().widen(end - begin, x + begin, y + begin); });
}

void narrow(int64_t n, const float* x, bf16* y) {
  parallel_rows(n, 1,
                [&](int64_t begin, int64_t end) { convert_kernels().narrow(end - begin, x + begin, y + begin); });
}

}  // namespace mudd
