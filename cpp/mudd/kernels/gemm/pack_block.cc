#include "mudd/kernels/gemm/pack_block.h"

#include <algorithm>

#include "mudd/kernels/gemm/gemm.h"

namespace mudd {

void pack_block(const PackedMatrix& m, int64_t r, int64_t r_end, int64_t c, int64_t c_end) {
  const GemmKernels& gemm = gemm_kernels(m.compute);
  const int64_t nr = gemm.nr;
  if (m.plain)  // panel of columns [at, at + nr), after r of its rows
    for (int64_t at = c; at < c_end; at += nr)
      gemm.pack(m.w + r * m.cols + at, m.cols, r_end - r, std::min(nr, m.cols - at), 0, 1,
                static_cast<std::byte*>(m.plain) + gemm.panel_bytes(m.rows, at) + gemm.panel_bytes(r, nr));
  if (m.transposed)  // panel of rows [at, at + nr), after c of its columns
    for (int64_t at = r; at < r_end; at += nr)
      gemm.pack_transposed(
          m.w + at * m.cols + c, m.cols, c_end - c, std::min(nr, m.rows - at), 0, 1,
          static_cast<std::byte*>(m.transposed) + gemm.panel_bytes(m.cols, at) + gemm.panel_bytes(c, nr));
}

}  // namespace mudd
