// Ownership: the process that sums and updates each part of every parameter, and the buckets in which gradients
// are summed while backward continues. Both depend only on the plan and the count of owners, so all processes
// compute the same.
#pragma once

#include <cstdint>
#include <vector>

#include "mudd/dist/comm.h"
#include "mudd/graph/planner.h"
#include "mudd/params/slices.h"

namespace mudd {

// Owners with the same index on their hosts are adjacent, so that the data that a rank sends for its host, or
// sums for all hosts, are one range of a parameter.
inline int owner_of(const dist::Comm& comm, int node, int node_rank) { return node_rank * comm.nodes() + node; }

class Ownership {
 public:
  // whole: parameters whose matrices need a single owner (for optimizers on whole matrices). bucket_bytes: the
  // gradient bytes of a full bucket.
  Ownership(const Declarations& parameters, const Plan& plan, int owners, const WholeMatrices& whole,
            int64_t bucket_bytes);

  const Slices& slices() const { return slices_; }
  // Return a contiguous part between borders of units; empty if the owner has nothing of the parameter. A
  // parameter without a gradient has no owner.
  Part part(int parameter, int owner) const { return slices_.part(parameter, owner); }
  const std::vector<GradientBucket>& buckets() const { return buckets_; }
  // Return the bucket in which the last use of a parameter becomes final; -1: it has no gradient.
  int home(int parameter) const { return home_[parameter]; }

 private:
  Slices slices_;
  std::vector<GradientBucket> buckets_;
  std::vector<int> home_;
};

}  // namespace mudd
