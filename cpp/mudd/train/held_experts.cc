#include "mudd/train/held_experts.h"

namespace mudd {

void HeldExperts::list(int parameter, int64_t at, std::vector<dist::OwnedRange>& pieces) const {
  const int64_t first = executor_.store().parameters().held(parameter).begin;
  for (int holder = 0; holder < group()->holders(); ++holder) {
    const Part p = part(parameter, group()->holders_of_mine()[holder]);
    pieces.push_back({.offset = at + p.begin - first, .length = p.size(), .owner = holder});
  }
}

// The groups have aligned runs of shards, in holder order: the sum continues with the tree over shards.
std::shared_ptr<dist::Pending> HeldExperts::sum(float* plane, const std::vector<Gradient>& gradients) {
  if (alone() || gradients.empty()) return nullptr;
  std::vector<dist::OwnedRange> pieces;
  for (const Gradient& g : gradients) list(g.parameter, g.at, pieces);
  return comm_.sum_among(group()->holders_of_mine(), plane, pieces);
}

void HeldExperts::send_weights() {
  if (alone()) return;
  ParamStore& store = executor_.store();
  std::vector<std::shared_ptr<dist::Pending>> sent;
  std::vector<Part> others;
  for (int i = 0; i < store.parameters().count(); ++i) {
    if (!deals(i) || executor_.gradients().uses(i) == 0) continue;
    std::vector<dist::OwnedRange> pieces;
    list(i, 0, pieces);
    sent.push_back(
        comm_.gather_among(group()->holders_of_mine(), store.planes().master(i), sizeof(float), pieces));
    for (int rank : group()->holders_of_mine())
      if (rank != comm_.rank()) others.push_back(part(i, rank));
  }
  for (const auto& weights : sent) comm_.wait([&] { return weights->done(); });
  for (const Part& p : others) store.packs().repack(p);
}

}  // namespace mudd
