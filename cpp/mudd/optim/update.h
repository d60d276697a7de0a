// The elementwise optimizers: one sweep over all their parameters that clips,
// updates and repacks.
#pragma once

#include <cstdint>
#include <span>

#include "mudd/base/kernel_table.h"
#include "mudd/optim/optimizer.h"
#include "mudd/optim/update_kernels.h"

namespace mudd {

// An optimizer that treats each weight alone. Memory: reads w, the moments and g, writes w, the moments and the
// packed copies once each.
class Elementwise : public Optimizer {
 public:
  using Rows = std::span<const KernelRow<UpdateKernels>>;
  Elementwise(Rows rows, const OptimizerSettings& settings)
      : Optimizer(settings), rows_(rows), kernels_(choose(rows)) {}
  bool update(std::span<UpdateParameter> matrices, int64_t n, double grad_scale,
              std::byte* scratch) const override;
  // Of update n.
  virtual UpdateFactors factors(const UpdateParameter& parameter, int64_t n, double grad_scale) const = 0;
  // All kernels of this optimizer, for its tests and benchmarks.
  Rows rows() const { return rows_; }

 private:
  Rows rows_;
  const UpdateKernels& kernels_;
};

}  // namespace mudd
