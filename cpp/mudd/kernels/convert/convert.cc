#include "mudd/kernels/convert/convert.h"

#include <algorithm>

#include "mudd/base/row_tasks.h"

namespace mudd {

std::span<const KernelRow<ConvertKernels>> convert_rows() {
  static const KernelRow<ConvertKernels> rows[] = {MUDD_KERNEL_ROWS(convert_f32)};
  return rows;
}

const ConvertKernels& convert_kernels() {
  static const ConvertKernels& best = choose(convert_rows());
  return best;
}

void copy_wide(int64_t n, ConstCells x, float* y) {
  if (x.type == DType::bf16) convert_kernels().widen(n, x.b16(), y);
  else if (x.type == DType::f16) convert_kernels().widen_half(n, x.h16(), y);
  else std::copy_n(x.f32(), n, y);
}

void copy_rounded(int64_t n, const float* x, Cells y) {
  if (y.type == DType::bf16) convert_kernels().narrow(n, x, y.b16());
  else if (y.type == DType::f16) convert_kernels().narrow_half(n, x, y.h16());
  else std::copy_n(x, n, y.f32());
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
