// Optimizer: the update of a group of matrices with their moments. Its spec says which parameters it can take and
// how many moments they have. The formula of each is in its folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "mudd/base/row_gradient.h"
#include "mudd/base/types.h"
#include "mudd/optim/optimizer_spec.h"
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
  void* m = nullptr;                  // first moment, of type Optimizer::moment()
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

class Optimizer {
 public:
  explicit Optimizer(const OptimizerSettings& settings) : settings_(settings) {}
  virtual ~Optimizer() = default;
  const OptimizerSpec& spec() const { return settings_.spec(); }
  DType moment() const { return settings_.moment(); }
  // That update needs for these matrices.
  virtual int64_t scratch_bytes(std::span<const UpdateParameter>) const { return 0; }
  // Update number n (from 1) of every matrix, its moments and its packed copies; grad_scale: what the summed
  // gradients are multiplied with. Bits do not depend on the thread count. Allocates nothing. False: a weight or
  // moment that was written is not finite (all are written all the same).
  virtual bool update(std::span<UpdateParameter> matrices, int64_t n, double grad_scale,
                      std::byte* scratch) const = 0;

 protected:
  OptimizerSettings settings_;
};

// An optimizer of class T as OptimizerSpec::make.
template <class T>
std::unique_ptr<Optimizer> make(const OptimizerSettings& settings) {
  return std::make_unique<T>(settings);
}

// The optimizer of this name or alias. moment: the type of the first moment.
std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const OptionValues& settings = {},
                                          DType moment = DType::f32);

}  // namespace mudd
