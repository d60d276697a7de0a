// Optimizer: the update of a group of matrices with their moments. Its spec says which parameters it accepts
// and how many moments they have. The formula of each is in its folder.
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

// A parameter as a stored matrix [rows, cols], contiguous ([1, n] for vectors), or some of its rows, split at
// whole panels.
struct UpdateParameter {
  int64_t rows = 0, cols = 0;
  int64_t first_row = 0, matrix_rows = 0;  // in the matrix, and all its rows; 0: it is whole
  int64_t fan_in = 0, fan_out = 0;
  float* w = nullptr;
  const float* grads[kMaxGradientUses] = {};         // planes added in order; n_grads of them
  const RowTotal* grad_rows[kMaxGradientUses] = {};  // a plane with a row list; null: grads[i]
  int64_t grad_begin = 0;                            // of this part in the tables of grad_rows, in elements
  int n_grads = 0;
  void* m = nullptr;            // first moment, of type Optimizer::moment()
  void* v = nullptr;            // second moment, of type Optimizer::second(), or null
  float* row_moment = nullptr;  // factors of the second moment [rows] and [cols], in place of v, or null
  float* column_moment = nullptr;
  float* row_update = nullptr;        // the number of the last update of each row, for OptimizerSpec::by_rows
  void* packed_plain = nullptr;       // panels of W (see gemm.h), refreshed from the new w, or null
  void* packed_transposed = nullptr;  // panels of W^T
  DType packed = DType::f32;          // compute type that the panels are for
  double lr = 0;                      // learning rate times the parameter's lr_scale
  double decay = 0;                   // fraction of w to subtract
  double eps = 1e-8;                  // eps times the parameter's eps_scale
  int64_t first_task = 0;             // set by update
  UpdateFactors factors;              // the same
  float* column_sums = nullptr;       // the same, in its scratch
  double per_row_mean = 0;            // the same: 1 / mean of row_moment
};

class Optimizer {
 public:
  explicit Optimizer(const OptimizerSettings& settings) : settings_(settings) {}
  virtual ~Optimizer() = default;
  const OptimizerSpec& spec() const { return settings_.spec(); }
  DType moment() const { return settings_.moment(); }
  DType second() const { return settings_.second(); }
  // Return true if the second moment of a matrix is stored by its factors. It then needs whole matrices.
  virtual bool factored() const { return false; }
  bool whole_matrices() const { return spec().whole_matrices || factored(); }
  // Return the scratch size of update for these matrices.
  virtual int64_t scratch_bytes(std::span<const UpdateParameter>) const { return 0; }
  // Run update n (from 1) of every matrix, its moments and its packed copies; grad_scale: the factor of the
  // summed gradients. Bits do not depend on the thread count. Allocates nothing. Return false if a written
  // weight or moment is not finite (all are written anyway).
  virtual bool update(std::span<UpdateParameter> matrices, int64_t n, double grad_scale,
                      std::byte* scratch) const = 0;

 protected:
  OptimizerSettings settings_;
};

// Create an optimizer of class T, for OptimizerSpec::make.
template <class T>
std::unique_ptr<Optimizer> make(const OptimizerSettings& settings) {
  return std::make_unique<T>(settings);
}

// Create the optimizer of this name or alias. moment, second: the types of the first and the second moment.
std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const OptionValues& settings = {},
                                          DType moment = DType::f32, DType second = DType::f32);

}  // namespace mudd
