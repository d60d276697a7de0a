// The elementwise optimizers: one sweep over all their parameters that clips, updates and repacks.
#pragma once

#include <cstdint>
#include <span>

#include "mudd/optim/optimizer.h"
#include "mudd/optim/update_kernels.h"

namespace mudd {

// Refresh the pieces of panels of rows [r, r_end) x columns [c, c_end) of p.
void repack(const UpdateParameter& p, int64_t r, int64_t r_end, int64_t c, int64_t c_end);

// An optimizer that updates each weight separately; its spec has its kernels. Memory: reads w, the moments and
// g, writes w, the moments and the packed copies once each.
class Elementwise : public Optimizer {
 public:
  explicit Elementwise(const OptimizerSettings& settings)
      : Optimizer(settings), kernels_(choose(settings.spec().rows)) {}
  bool update(std::span<UpdateParameter> matrices, int64_t n, double grad_scale,
              std::byte* scratch) const override;
  // Return the factors of update n.
  virtual UpdateFactors factors(const UpdateParameter& parameter, int64_t n, double grad_scale) const = 0;

 private:
  const UpdateKernels& kernels_;
};

}  // namespace mudd
