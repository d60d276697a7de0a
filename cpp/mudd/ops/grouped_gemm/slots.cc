#include "mudd/ops/grouped_gemm/slots.h"

#include <algorithm>

#include "mudd/base/check.h"

namespace mudd {

ExpertSlots::ExpertSlots(std::byte* memory, int64_t experts, int64_t n, int n_shards)
    : n_experts(experts), slots(n), shards(n_shards) {
  cuts = reinterpret_cast<int64_t*>(memory);
  token = reinterpret_cast<int32_t*>(cuts + n_experts * (shards + 1));
  slot = token + slots;
  place = slot + slots;
  gate = reinterpret_cast<float*>(place + slots);
}

int64_t ExpertSlots::bytes(int64_t experts, int64_t n, int n_shards) {
  return experts * (n_shards + 1) * static_cast<int64_t>(sizeof(int64_t)) + n * 16;
}

void ExpertSlots::sort(const Shards& cut, const Tensor& experts, const Tensor& gates) const {
  const int64_t k = experts.cols, width = shards + 1;
  std::fill(cuts, cuts + n_experts * width, int64_t{0});
  // Count the rows of each expert in each shard, stored one index to the right.
  for (int s = 0; s < shards; ++s)
    for (int64_t t = cut.row_begin(s, experts.rows); t < cut.row_begin(s + 1, experts.rows); ++t)
      for (int64_t r = 0; r < k; ++r) {
        const int32_t e = experts.i32()[t * experts.stride + r];
        if (e < -1 || e >= n_experts)
          fail("grouped_gemm", "experts: expected numbers from -1 to ", n_experts - 1, ", got ", e, " at token ",
               t);
        if (e >= 0) ++cuts[e * width + s + 1];
      }
  int64_t row = 0;
  for (int64_t e = 0; e < n_experts; ++e) {
    cuts[e * width] = row;
    for (int s = 1; s <= shards; ++s) row = cuts[e * width + s] += row;
  }
  // Each cut moves through its rows to the start of the next ...
  for (int s = 0; s < shards; ++s)
    for (int64_t t = cut.row_begin(s, experts.rows); t < cut.row_begin(s + 1, experts.rows); ++t)
      for (int64_t r = 0; r < k; ++r) {
        const int32_t e = experts.i32()[t * experts.stride + r];
        int64_t at = -1;
        if (e >= 0) {
          at = cuts[e * width + s]++;
          token[at] = static_cast<int32_t>(t);
          slot[at] = static_cast<int32_t>(t * k + r);
          gate[at] = gates.f32()[t * gates.stride + r];
        }
        place[t * k + r] = static_cast<int32_t>(at);
      }
  // ... and back: now the cut of shard s is at the index of s + 1.
  for (int64_t e = 0; e < n_experts; ++e) {
    for (int s = shards - 1; s > 0; --s) cuts[e * width + s] = cuts[e * width + s - 1];
    cuts[e * width] = e ? end(e - 1) : 0;
  }
}

int64_t ExpertSlots::blocks(int64_t step, int64_t first, int64_t last) const {
  int64_t n = 0;
  for (int64_t e = first; e < last; ++e) n += (end(e) - begin(e) + step - 1) / step;
  return n;
}

ExpertSlots::Block ExpertSlots::block(int64_t number, int64_t step, int64_t first) const {
  for (int64_t e = first;; ++e) {
    const int64_t n = (end(e) - begin(e) + step - 1) / step;
    if (number < n) return {e, begin(e) + number * step, std::min(end(e), begin(e) + (number + 1) * step)};
    number -= n;
  }
}

}  // namespace mudd
