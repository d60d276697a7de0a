// The choice of experts for each row, the drops by capacity, the metrics of a sample, and the gradient of the
// logits.
#include <algorithm>

#include "mudd/base/math.h"
#include "mudd/base/parallel.h"
#include "mudd/ops/moe_route/node.h"

namespace mudd {

bool MoeRoute::real(const Run& run, int64_t row) const {
  for (int i : {kSegments, kKeyMask})
    if (run.has_in(i) && run.in(i).i32()[row / length_ * run.in(i).stride + row % length_] == 0) return false;
  return true;
}

void MoeRoute::choose_experts(const Run& run, int64_t row) const {
  const float* p = run.saved_as<float>(kProbabilities) + row * experts_;
  int32_t* chosen = run.saved_as<int32_t>(kChosen) + row * k_;
  float* gates = run.saved_as<float>(kChosenGates) + row * k_;
  float total = 0;
  for (int64_t r = 0; r < k_; ++r) {
    int32_t best = -1;
    for (int32_t e = 0; e < experts_; ++e)
      if (std::find(chosen, chosen + r, e) == chosen + r && (best < 0 || p[e] > p[best])) best = e;
    chosen[r] = best;
    total += p[best];
  }
  int32_t* experts = run.out(kExperts).i32() + row * run.out(kExperts).stride;
  for (int64_t r = 0; r < k_; ++r) {
    gates[r] = p[chosen[r]] / total;
    experts[r] = chosen[r];
  }
}

void MoeRoute::drop(const Run& run) const {
  const int64_t rows = samples_ * length_;
  int32_t* work = reinterpret_cast<int32_t*>(run.scratch() + work_at_);
  const int64_t scopes = capacity_.per_shard ? run.shards().count() : samples_;
  check(run.out(kExperts).stride == k_, "moe_route", "experts: expected rows without gaps");
  parallel_for(scopes, [&](int64_t scope, int) {
    const int s = static_cast<int>(scope);
    const int64_t begin = capacity_.per_shard ? run.shards().row_begin(s, rows) : scope * length_;
    const int64_t tokens = (capacity_.per_shard ? run.shards().row_begin(s + 1, rows) : begin + length_) - begin;
    drop_over_capacity(capacity_, capacity_.of(tokens, k_, experts_), tokens * k_, experts_,
                       run.saved_as<float>(kChosenGates) + begin * k_, run.out(kExperts).i32() + begin * k_,
                       work + begin * k_ + scope * experts_);
  });
}

void MoeRoute::finish_sample(const Run& run, int64_t sample) const {
  const RouteMetrics at{experts_};
  float* metrics = run.out(kMetrics).f32() + sample * run.out(kMetrics).stride;
  std::fill(metrics, metrics + at.width(), 0.0f);
  double squared_lse = 0, entropy = 0;
  for (int64_t row = sample * length_; row < (sample + 1) * length_; ++row) {
    const float* gates = run.saved_as<float>(kChosenGates) + row * k_;
    const int32_t* chosen = run.saved_as<int32_t>(kChosen) + row * k_;
    const int32_t* experts = run.out(kExperts).i32() + row * run.out(kExperts).stride;
    float* out = run.out(kGates).f32() + row * run.out(kGates).stride;
    const bool counts = real(run, row);
    for (int64_t r = 0; r < k_; ++r) {
      const bool kept = experts[r] >= 0;
      out[r] = kept ? gates[r] : 0.0f;
      metrics[kept ? at.kept(chosen[r]) : at.dropped(chosen[r])] += 1;
      if (counts) metrics[at.routed(chosen[r])] += 1;
    }
    if (!counts) continue;
    const RouteRow& s = run.saved_as<RouteRow>(kStats)[row];
    const double log_sum = math::log(s.sum), lse = s.max + log_sum;
    squared_lse += lse * lse;
    entropy += log_sum - s.mean;
    metrics[at.tokens()] += 1;
  }
  metrics[at.squared_lse()] = static_cast<float>(squared_lse);
  metrics[at.entropy()] = static_cast<float>(entropy);
  for (int64_t e = 0; e < experts_; ++e) {
    double sum = 0;
    for (int64_t row = sample * length_; row < (sample + 1) * length_; ++row)
      if (real(run, row)) sum += run.saved_as<float>(kProbabilities)[row * experts_ + e];
    metrics[at.probability(e)] = static_cast<float>(sum);
  }
}

void MoeRoute::logit_gradient(const Run& run, int64_t row, float* dz) const {
  std::fill(dz, dz + experts_, 0.0f);
  const int32_t* chosen = run.saved_as<int32_t>(kChosen) + row * k_;
  const float* gates = run.saved_as<float>(kChosenGates) + row * k_;
  if (const Tensor& d = run.dout(kGates)) {
    const int32_t* experts = run.out(kExperts).i32() + row * run.out(kExperts).stride;
    const float* dgates = d.f32() + row * d.stride;
    float mean = 0;
    for (int64_t r = 0; r < k_; ++r)
      if (experts[r] >= 0) mean += gates[r] * dgates[r];
    for (int64_t r = 0; r < k_; ++r) dz[chosen[r]] = gates[r] * ((experts[r] >= 0 ? dgates[r] : 0.0f) - mean);
  }
  const Tensor& f = run.dout(kMetrics);
  if (!f || !real(run, row)) return;
  const RouteMetrics at{experts_};
  const float* dfigures = f.f32() + row / length_ * f.stride;
  const RouteRow& s = run.saved_as<RouteRow>(kStats)[row];
  float slope = 0;
  if (dfigures[at.squared_lse()] != 0)
    slope = 2 * dfigures[at.squared_lse()] * (s.max + static_cast<float>(math::log(s.sum)));
  kernels_->balance(experts_, run.saved_as<float>(kProbabilities) + row * experts_, dfigures + at.probability(0),
                    slope, dz);
}

}  // namespace mudd
