#include "mudd/train/ownership.h"

#include "mudd/base/check.h"
#include "mudd/params/units.h"

namespace mudd {
Ownership::Ownership(const Declarations& parameters, const Plan& plan, int owners,
                     const std::function<bool(const Parameter&)>& whole, int64_t bucket_bytes)
    : owners_(owners), borders_(parameters.count(), std::vector<int64_t>(owners + 1, 0)) {
  check(owners >= 1, "ownership", "owners: expected 1 or more, got ", owners);
  cut_buckets(parameters, plan, bucket_bytes);
  home_.assign(parameters.count(), -1);
  for (size_t b = 0; b < buckets_.size(); ++b)
    for (int u = buckets_[b].begin; u < buckets_[b].end; ++u)
      home_[plan.gradients[u].parameter] = static_cast<int>(b);
  for (size_t b = 0; b < buckets_.size(); ++b) {
    std::vector<int> members;
    for (int i = 0; i < parameters.count(); ++i)
      if (home_[i] == static_cast<int>(b)) members.push_back(i);
    share_out(parameters, members, whole);
  }
}

void Ownership::cut_buckets(const Declarations& parameters, const Plan& plan, int64_t bucket_bytes) {
  Bucket next;
  int64_t bytes = 0;
  for (const GradientUse& use : plan.gradients) {
    bytes += parameters.at(use.parameter).size() * 4;
    ++next.end;
    if (bytes < bucket_bytes) continue;
    buckets_.push_back(next);
    next.begin = next.end;
    bytes = 0;
  }
  if (next.begin < next.end) buckets_.push_back(next);
}

// Gives each owner about as many numbers of the members: a unit goes where its middle falls.
void Ownership::share_out(const Declarations& parameters, const std::vector<int>& members,
                          const std::function<bool(const Parameter&)>& whole) {
  int64_t all = 0, before = 0;
  for (int i : members) all += parameters.at(i).size();
  for (int i : members) {
    const Parameter& p = parameters.at(i);
    const bool by_matrix = whole(p);
    std::vector<int64_t>& borders = borders_[i];
    int64_t at = 0;
    for (int owner = 0; owner < owners_; ++owner) {
      borders[owner] = at;
      while (at < p.size()) {
        const int64_t end = next_border(p, at, by_matrix);
        if ((2 * before + at + end) * owners_ >= 2 * all * (owner + 1)) break;
        at = end;
      }
    }
    borders[owners_] = p.size();
    before += p.size();
  }
}

Part Ownership::part(int parameter, int owner) const {
  return {parameter, borders_[parameter][owner], borders_[parameter][owner + 1]};
}

}  // namespace mudd
