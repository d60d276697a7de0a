// Ownership: which process sums and updates which part of every parameter, and in which pieces gradients are
// summed while backward goes on. Both follow from the plan and the number of owners alone, so all processes know
// them.
#pragma once

#include <cstdint>
#include <vector>

#include "mudd/dist/comm.h"
#include "mudd/graph/planner.h"
#include "mudd/params/slices.h"

namespace mudd {

// Owners of one number inside their nodes are neighbours, so that what a rank brings for its node, or sums for all
// nodes, is one range of a parameter.
inline int owner_of(const dist::Comm& comm, int node, int node_rank) { return node_rank * comm.nodes() + node; }

class Ownership {
 public:
  // whole: parameters whose matrices have one owner each (an optimizer that needs them whole). bucket_bytes: of
  // the gradients from which on a bucket is full.
  Ownership(const Declarations& parameters, const Plan& plan, int owners, const WholeMatrices& whole,
            int64_t bucket_bytes);

  const Slices& slices() const { return slices_; }
  // Contiguous, between borders of units; empty where the owner has nothing of it. A parameter without a gradient
  // has no owner.
  Part part(int parameter, int owner) const { return slices_.part(parameter, owner); }
  const std::vector<GradientBucket>& buckets() const { return buckets_; }
  // The bucket in which the last use of a parameter becomes final; -1: it has no gradient.
  int home(int parameter) const { return home_[parameter]; }

 private:
  Slices slices_;
  std::vector<GradientBucket> buckets_;
  std::vector<int> home_;
};

}  // namespace mudd
