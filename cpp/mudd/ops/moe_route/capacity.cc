#include "mudd/ops/moe_route/capacity.h"

#include <algorithm>
#include <cmath>

namespace mudd {

int64_t Capacity::of(int64_t tokens, int64_t k, int64_t experts) const {
  const double slots = static_cast<double>(tokens * k) / static_cast<double>(experts) * factor;
  const double whole = per_shard ? std::ceil(slots) : std::floor(slots);
  return static_cast<int64_t>(std::min(whole, static_cast<double>(tokens)));
}

void drop_over_capacity(const Capacity& capacity, int64_t limit, int64_t n, int64_t n_experts, const float* gates,
                        int32_t* experts, int32_t* work) {
  if (!capacity.by_probs) {
    std::fill(work, work + n_experts, 0);
    for (int64_t i = 0; i < n; ++i)
      if (++work[experts[i]] > limit) experts[i] = -1;
    return;
  }
  // A total order (ties: the earlier slot), so that the same slots stay on every machine.
  const auto before = [gates](int32_t a, int32_t b) {
    return gates[a] > gates[b] || (gates[a] == gates[b] && a < b);
  };
  for (int64_t e = 0; e < n_experts; ++e) {
    int64_t chosen = 0;
    for (int64_t i = 0; i < n; ++i)
      if (experts[i] == e) work[chosen++] = static_cast<int32_t>(i);
    if (chosen <= limit) continue;
    std::nth_element(work, work + limit, work + chosen, before);
    for (int64_t i = limit; i < chosen; ++i) experts[work[i]] = -1;
  }
}

}  // namespace mudd
