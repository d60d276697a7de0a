// Gradients and weights of experts between the ranks that hold the same ones (SharedStep).
#include "mudd/base/shard_tree.h"
#include "mudd/kernels/reduce/reduce.h"
#include "mudd/train/shared_step.h"

namespace mudd {

// Adds the sums over the shards of each rank of the group by the tree, where they stayed apart.
void SharedStep::add_ranks(const GradientUse& use) {
  const int64_t stride = executor_.gradients().rank_stride(use.parameter);
  if (stride == 0) return;
  auto* first = reinterpret_cast<float*>(gradients_.plane(comm_.node_rank()) +
                                         executor_.gradients().place(use.parameter, use.use).offset);
  const float* sums[kMaxShards];
  const int ranks = executor_.store().experts()->ranks();
  for (int r = 0; r < ranks; ++r) sums[r] = first + r * stride;
  sum_planes({sums, static_cast<size_t>(ranks)}, first, stride);
}

// The groups have aligned runs of shards, in the order of the holders: the sum goes on with the tree over shards.
void SharedStep::sum_experts(const GradientBucket& bucket) {
  const dist::ExpertGroup* group = executor_.store().experts();
  if (!group || group->holders() == 1) return;
  auto* plane = reinterpret_cast<float*>(gradients_.plane(comm_.node_rank()));
  std::vector<dist::OwnedRange> pieces;
  for (int u = bucket.begin; u < bucket.end; ++u) {
    const int i = executor_.plan().gradients[u].parameter;
    if (!experts_.deals(i)) continue;
    const int64_t at = places_[comm_.node_rank()][u].offset / 4 - executor_.store().parameters().held(i).begin;
    for (int holder = 0; holder < group->holders(); ++holder) {
      const Part p = part_of(i, group->holders_of_mine()[holder]);
      pieces.push_back({.offset = at + p.begin, .length = p.size(), .owner = holder});
    }
  }
  if (!pieces.empty()) between_nodes_.push_back(comm_.sum_among(group->holders_of_mine(), plane, pieces));
}

// Gives the other holders the weights that this rank has updated, and takes in theirs.
void SharedStep::send_experts() {
  ParamStore& store = executor_.store();
  const dist::ExpertGroup* group = store.experts();
  if (!group || group->holders() == 1) return;
  std::vector<std::shared_ptr<dist::Pending>> sent;
  std::vector<Part> others;
  for (int i = 0; i < store.parameters().count(); ++i) {
    if (!experts_.deals(i) || ownership_.home(i) < 0) continue;
    std::vector<dist::OwnedRange> pieces;
    for (int holder = 0; holder < group->holders(); ++holder) {
      const int rank = group->holders_of_mine()[holder];
      const Part p = part_of(i, rank);
      pieces.push_back(
          {.offset = p.begin - store.parameters().held(i).begin, .length = p.size(), .owner = holder});
      if (rank != comm_.rank()) others.push_back(p);
    }
    sent.push_back(comm_.gather_among(group->holders_of_mine(), store.planes().master(i), sizeof(float), pieces));
  }
  for (const auto& weights : sent) comm_.wait([&] { return weights->done(); });
  for (const Part& part : others) store.packs().repack(part);
}

}  // namespace mudd
