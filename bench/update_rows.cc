// Rows of the optimizers: one update of a parameter that stays in the cache, moments in fp32 and in bf16.
#include "mudd/optim/adamw/adamw.h"
#include "mudd/optim/lion/lion.h"
#include "mudd/optim/sgd/sgd.h"
#include "mudd/optim/update.h"
#include "rows.h"

namespace mudd::bench {
namespace {

constexpr int64_t kNumbers = 1 << 15;

void add(std::span<const KernelRow<UpdateKernels>> rows, std::unique_ptr<Elementwise> optimizer) {
  UpdateParameter parameter;
  parameter.lr = 1e-6, parameter.decay = 1e-7;
  const UpdateFactors factors = optimizer->factors(parameter, 1, 1);
  const double planes =
      optimizer->spec().moments == 2 ? 3 : 2;  // w and moments, read and written; the gradient read
  register_rows(rows, "update", {.bytes = (8 * planes + 4) * kNumbers}, [=](const UpdateKernels& k) {
    return [&k, factors, w = filled(kNumbers), m = Floats(kNumbers), v = Floats(kNumbers),
            g = filled(kNumbers)]() mutable {
      const float* grads[] = {g.data()};
      benchmark::DoNotOptimize(k.update(kNumbers, w.data(), m.data(), v.data(), grads, 1, factors));
    };
  });
  register_rows(rows, "update_bf16", {.bytes = (8 * planes) * kNumbers}, [=](const UpdateKernels& k) {
    return [&k, factors, w = filled(kNumbers), m = std::vector<bf16>(kNumbers), v = Floats(kNumbers),
            g = filled(kNumbers)]() mutable {
      const float* grads[] = {g.data()};
      benchmark::DoNotOptimize(k.update_bf16(kNumbers, w.data(), m.data(), v.data(), grads, 1, factors));
    };
  });
}

}  // namespace

void add_updates() {
  add(adamw_rows(), adamw_optimizer(OptimizerSettings(adamw_spec())));
  add(lion_rows(), lion_optimizer(OptimizerSettings(lion_spec())));
  add(sgd_rows(), sgd_optimizer(OptimizerSettings(sgd_spec())));
}

}  // namespace mudd::bench
