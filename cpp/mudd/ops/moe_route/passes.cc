// The passes of moe_route: GEMMs of the router, its noise, and the work on rows in between.
#include "mudd/base/parallel.h"
#include "mudd/base/rng.h"
#include "mudd/base/row_tasks.h"
#include "mudd/graph/sink_gradient.h"
#include "mudd/kernels/convert/wide_rows.h"
#include "mudd/kernels/gemm/of_tensors.h"
#include "mudd/ops/moe_route/node.h"

namespace mudd {

RightOperand MoeRoute::right(const Run& run, Pack how) const {
  if (!packs_) return {"moe_route", run, kW, how, nullptr};
  RightOperand own;  // the copies of a bf16 graph's store are not fp32
  own.pack = {run.in(kW).f32(), d_, experts_, how == Pack::transposed, run.scratch()};
  return own;
}

void MoeRoute::with_noise(const Run& run, int64_t row, const float* from, float* to, bool add) const {
  const PhiloxKey key = philox_key(run.step().seed, "moe.jitter");
  const auto sample = static_cast<uint32_t>(run.step().first_sample + row / length_);
  for (int64_t d = 0; d < d_; ++d) {
    const auto element = static_cast<uint32_t>(row % length_ * d_ + d);
    const PhiloxBlock words =
        philox({static_cast<uint32_t>(run.step().step), sample, static_cast<uint32_t>(layer_), element / 4}, key);
    const float noise = 1.0f + static_cast<float>(jitter_) * (2.0f * uniform(words[element % 4]) - 1.0f);
    to[d] = add ? to[d] + from[d] * noise : from[d] * noise;
  }
}

Tensor MoeRoute::router_input(const Run& run) const {
  const Tensor& x = run.in(kX);
  if (jitter_ == 0) return x;
  float* noisy = reinterpret_cast<float*>(run.scratch() + x_at_);
  parallel_rows(x.rows, 16 * d_, [&](int64_t begin, int64_t end) {
    const WideRows from(x, begin, end);
    for (int64_t r = begin; r < end; ++r) with_noise(run, r, from.row(r), noisy + r * d_, false);
  });
  return {noisy, x.rows, d_, d_};
}

void MoeRoute::forward(const Run& run) {
  const Tensor x = router_input(run);
  float* p = run.saved_as<float>(kProbabilities);
  GemmBlock g = matmul_of(x, {p, x.rows, experts_, experts_});
  right(run, Pack::plain).put(&g);
  multiply(g);
  RouteRow* stats = run.saved_as<RouteRow>(kStats);
  parallel_rows(x.rows, 64 * experts_, [&](int64_t begin, int64_t end) {
    kernels_->softmax(end - begin, experts_, p + begin * experts_, stats + begin);
    for (int64_t r = begin; r < end; ++r) choose_experts(run, r);
  });
  if (capacity_.limited()) drop(run);
  parallel_for(samples_, [&](int64_t sample, int) { finish_sample(run, sample); });
}

void MoeRoute::weight_gradient_of(const Run& run, const float* dz) const {
  const Tensor x = router_input(run);
  const Tensor dlogits{const_cast<float*>(dz), x.rows, experts_, experts_};
  float* scratch = reinterpret_cast<float*>(run.scratch() + work_at_);
  weight_gradient(SinkGradient("moe_route", x, dlogits, run.shards(), run.sink(kW), scratch, gemm_bytes_).block);
}

void MoeRoute::input_gradient(const Run& run, const float* dz) const {
  const Tensor& dx = run.din(kX);
  float* noisy = reinterpret_cast<float*>(run.scratch() + x_at_);
  const Tensor dlogits{const_cast<float*>(dz), dx.rows, experts_, experts_};
  GemmBlock g = matmul_of(dlogits, jitter_ > 0 ? Tensor{noisy, dx.rows, d_, d_} : dx);
  right(run, Pack::transposed).put(&g);
  if (run.accumulate(kX) && jitter_ == 0) add_residual(dx, &g);
  multiply(g);
  if (jitter_ == 0) return;
  parallel_rows(dx.rows, 16 * d_, [&](int64_t begin, int64_t end) {
    const bool add = run.accumulate(kX);
    const NarrowRows to(dx, begin, end, add);
    for (int64_t r = begin; r < end; ++r) with_noise(run, r, noisy + r * d_, to.row(r), add);
  });
}

void MoeRoute::backward(const Run& run) {
  const int64_t rows = samples_ * length_;
  float* dz = run.scratch_as<float>() + x_at_ / kFloat - rows * experts_;
  parallel_rows(rows, 64 * experts_, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) logit_gradient(run, r, dz + r * experts_);
  });
  if (run.wants(kW)) weight_gradient_of(run, dz);  // first: with jitter dx' overwrites x'
  if (run.wants(kX)) input_gradient(run, dz);
}

}  // namespace mudd
