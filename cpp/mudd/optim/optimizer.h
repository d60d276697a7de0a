// Optimizer: the update of a group of matrices with their moments. A step asks it which parameters it can take,
// how many moments they have and how much scratch it needs. The formula of each is in its folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mudd/base/row_gradient.h"
#include "mudd/base/types.h"
#include "mudd/optim/update_kernels.h"
#include "mudd/params/parameter.h"

namespace mudd {

constexpr int kMaxGradientUses = 4;
constexpr int kMaxMoments = 2;

// A parameter as a stored matrix [rows, cols], contiguous ([1, n] for vectors), or rows of one that are cut at
// whole panels.
struct UpdateParameter {
  int64_t rows = 0, cols = 0;
  int64_t first_row = 0, matrix_rows = 0;  // in the matrix, and the rows of all of it; 0: it is whole
  int64_t fan_in = 0, fan_out = 0;
  float* w = nullptr;
  const float* grads[kMaxGradientUses] = {};         // planes added in order; n_grads of them
  const RowTotal* grad_rows[kMaxGradientUses] = {};  // a plane that is given by its rows; null: grads[i]
  int64_t grad_begin = 0;                            // of this part in the tables of grad_rows, in elements
  int n_grads = 0;
  void* m = nullptr;                  // first moment, of the type in the optimizer's settings
  float* v = nullptr;                 // second moment; null where there is none
  void* packed_plain = nullptr;       // panels of W (see gemm.h), refreshed from the new w; null: none kept
  void* packed_transposed = nullptr;  // panels of W^T
  DType packed = DType::f32;          // compute type that the panels are for
  double lr = 0;                      // learning rate times the parameter's lr_scale
  double decay = 0;                   // fraction of w taken away
  double eps = 1e-8;                  // eps times the parameter's eps_scale
  int64_t first_task = 0;             // written by update
  UpdateFactors factors;              // the same
};

// A config's settings; each optimizer reads its own.
struct OptimizerSettings {
  DType moment = DType::f32;         // type of the first moment: f32 or bf16
  double beta1 = 0.9, beta2 = 0.95;  // adamw, lion
  double eps_root = 0;               // adamw
  double momentum = 0.9;             // sgd
  bool nesterov = true;              // sgd
  double muon_momentum = 0.95;
  int muon_steps = 5;  // of Newton and Schulz's iteration
  std::string muon_adjust_lr = "match_rms_adamw";
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual bool takes(const Parameter&) const { return true; }  // whether it can update the parameter
  virtual int moments() const = 0;                             // 1, or 2 with a second one in fp32
  // Whether it needs all of a matrix at once; otherwise parts of it may be updated in different processes.
  virtual bool whole_matrices() const { return false; }
  // That update needs for these matrices.
  virtual int64_t scratch_bytes(std::span<const UpdateParameter>) const { return 0; }
  // Update number n (from 1) of every matrix, its moments and its packed copies; grad_scale: what the summed
  // gradients are multiplied with. Bits do not depend on the thread count. Allocates nothing. False: a weight or
  // moment that was written is not finite (all are written all the same).
  virtual bool update(std::span<UpdateParameter> matrices, int64_t n, double grad_scale,
                      std::byte* scratch) const = 0;
};

// The optimizer of this name, of the table in optimizer.cc. adam_pax of the MUDDFormer code is adamw: the same
// arithmetic (docs/maths/optimizers.md, 2).
std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const OptimizerSettings& settings);

}  // namespace mudd
