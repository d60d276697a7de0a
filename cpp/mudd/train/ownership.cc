#include "mudd/train/ownership.h"

namespace mudd {

Ownership::Ownership(const Declarations& parameters, const Plan& plan, int owners, const WholeMatrices& whole,
                     int64_t bucket_bytes)
    : slices_(parameters.count(), owners),
      buckets_(cut_buckets(parameters, plan.gradients, bucket_bytes)),
      home_(parameters.count(), -1) {
  for (size_t b = 0; b < buckets_.size(); ++b)
    for (int u = buckets_[b].begin; u < buckets_[b].end; ++u)
      home_[plan.gradients[u].parameter] = static_cast<int>(b);
  for (size_t b = 0; b < buckets_.size(); ++b) {
    std::vector<int> members;
    for (int i = 0; i < parameters.count(); ++i)
      if (home_[i] == static_cast<int>(b)) members.push_back(i);
    slices_.share_out(parameters, members, whole);
  }
}

}  // namespace mudd
