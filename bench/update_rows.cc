// Rows of the optimizers: one update of a parameter that stays in the cache, moments in fp32 and in bf16.
#include "mudd/optim/update.h"
#include "rows.h"

namespace mudd::bench {
namespace {

constexpr int64_t kNumbers = 1 << 15;

void add(const OptimizerSpec& spec) {
  const std::unique_ptr<Optimizer> optimizer = spec.make(OptimizerSettings(spec));
  UpdateParameter parameter;
  parameter.lr = 1e-6, parameter.decay = 1e-7;
  const UpdateFactors factors = static_cast<const Elementwise&>(*optimizer).factors(parameter, 1, 1);
  const double planes = spec.moments == 2 ? 3 : 2;  // w and moments, read and written; the gradient read
  register_rows(spec.rows, "update", {.bytes = (8 * planes + 4) * kNumbers}, [=](const UpdateKernels& k) {
    return [&k, factors, w = filled(kNumbers), m = Floats(kNumbers), v = Floats(kNumbers),
            g = filled(kNumbers)]() mutable {
      const float* grads[] = {g.data()};
      benchmark::DoNotOptimize(k.update(kNumbers, w.data(), m.data(), v.data(), grads, 1, factors));
    };
  });
  register_rows(spec.rows, "update_bf16", {.bytes = (8 * planes) * kNumbers}, [=](const UpdateKernels& k) {
    return [&k, factors, w = filled(kNumbers), m = std::vector<bf16>(kNumbers), v = Floats(kNumbers),
            g = filled(kNumbers)]() mutable {
      const float* grads[] = {g.data()};
      benchmark::DoNotOptimize(k.update_bf16(kNumbers, w.data(), m.data(), v.data(), grads, 1, factors));
    };
  });
}

}  // namespace

void add_updates() {
  for (const OptimizerSpec* spec : optimizer_specs())
    if (!spec->rows.empty()) add(*spec);
}

}  // namespace mudd::bench
