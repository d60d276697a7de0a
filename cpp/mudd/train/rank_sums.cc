#include "mudd/train/rank_sums.h"

#include <array>

#include "mudd/base/shard_tree.h"
#include "mudd/kernels/reduce/reduce.h"

namespace mudd {

RankSums::RankSums(const Executor& executor, NodeGradients& gradients, const Slices& slices, ExpertParts experts)
    : executor_(executor),
      gradients_(gradients),
      comm_(gradients.comm()),
      slices_(slices),
      experts_(executor, comm_, std::move(experts)) {}

RankSums::Places RankSums::own_places() const {
  Places places;
  for (const GradientUse& u : executor_.plan().gradients)
    places.push_back(executor_.gradients().place(u.parameter, u.use));
  return places;
}

Part RankSums::part(int parameter, int rank) const {
  if (experts_.deals(parameter)) return experts_.part(parameter, rank);
  return slices_.part(parameter, owner_of(comm_, rank / comm_.node_size(), rank % comm_.node_size()));
}

// Return the part that this rank sums inside its host: its own and the parts of ranks with the same index on
// other hosts.
Part RankSums::part_of_nodes(int parameter) const {
  const int first = owner_of(comm_, 0, comm_.node_rank());
  return {parameter, slices_.part(parameter, first).begin, slices_.part(parameter, first + comm_.nodes() - 1).end};
}

// Return true if a step computes only some rows of a use's gradient.
bool RankSums::is_table(const GradientUse& use) const {
  const Plan& plan = executor_.plan();
  return executor_.graph().nodes()[plan.schedule[use.position].node].node->gradient_rows(use.input) > 0;
}

void RankSums::inside_node(const GradientBucket& bucket, const Skips& skips) const {
  if (comm_.node_size() == 1) return;
  for (int u = bucket.begin; u < bucket.end; ++u) {
    const GradientUse& use = executor_.plan().gradients[u];
    if (experts_.deals(use.parameter)) continue;
    const Part mine = part_of_nodes(use.parameter);
    if (mine.size() == 0 || (skips && skips(use))) continue;
    std::array<const float*, kMaxShards> planes;
    for (int r = 0; r < comm_.node_size(); ++r) planes[r] = first(r, u) + mine.begin;
    sum_planes({planes.data(), static_cast<size_t>(comm_.node_size())}, first(comm_.node_rank(), u) + mine.begin,
               mine.size());
  }
}

void RankSums::by_messages(const GradientBucket& bucket, Messages& under_way) {
  if (comm_.nodes() > 1) between_nodes(bucket, under_way);
  of_experts(bucket, under_way);
}

// For tables, send only rows that a sample has read.
void RankSums::between_nodes(const GradientBucket& bucket, Messages& under_way) const {
  std::vector<dist::OwnedRange> pieces, rows;
  for (int u = bucket.begin; u < bucket.end; ++u) {
    const GradientUse& use = executor_.plan().gradients[u];
    if (experts_.deals(use.parameter)) continue;
    check(!place(comm_.node_rank(), u).by_rows, "train_step",
          "several nodes need gradients of whole tables (gradient_rows)");
    const bool table = is_table(use);
    rows.clear();
    for (int node = 0; node < comm_.nodes(); ++node) {
      const Part p = slices_.part(use.parameter, owner_of(comm_, node, comm_.node_rank()));
      (table ? rows : pieces).push_back({.offset = own_element(u) + p.begin, .length = p.size(), .owner = node});
    }
    if (table)
      under_way.push_back(comm_.sum_between_nodes(own_plane(), rows,
                                                  executor_.store().parameters().at(use.parameter).cols(), wire_));
  }
  under_way.push_back(comm_.sum_between_nodes(own_plane(), pieces, 0, wire_));
}

void RankSums::of_experts(const GradientBucket& bucket, Messages& under_way) {
  std::vector<HeldExperts::Gradient> stacks;
  for (int u = bucket.begin; u < bucket.end; ++u) {
    const int i = executor_.plan().gradients[u].parameter;
    if (experts_.deals(i)) stacks.push_back({i, own_element(u)});
  }
  if (auto sum = experts_.sum(own_plane(), stacks)) under_way.push_back(std::move(sum));
}

}  // namespace mudd
