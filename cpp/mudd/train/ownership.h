// Ownership: which process sums and updates which part of every parameter, and in which pieces gradients are
// summed while backward goes on. Both follow from the plan and the number of owners alone, so all processes know
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "mudd/graph/planner.h"
#include "mudd/params/declarations.h"

namespace mudd {

class Ownership {
 public:
  // Uses [begin, end) of Plan::gradients, which are summed over processes together once backward has made them.
  struct Bucket {
    int begin = 0, end = 0;
  };

  // whole: parameters whose matrices have one owner each (an optimizer that needs them whole). bucket_bytes: of
  // the gradients from which on a bucket is full.
  Ownership(const Declarations& parameters, const Plan& plan, int owners,
            const std::function<bool(const Parameter&)>& whole, int64_t bucket_bytes);

  int owners() const { return owners_; }
  // Contiguous, between borders of units; empty where the owner has nothing of it. A parameter without a gradient
  // has no owner.
  Part part(int parameter, int owner) const;
  const std::vector<Bucket>& buckets() const { return buckets_; }
  // The bucket in which the last use of a parameter becomes final; -1: it has no gradient.
  int home(int parameter) const { return home_[parameter]; }

 private:
  void cut_buckets(const Declarations& parameters, const Plan& plan, int64_t bucket_bytes);
  void share_out(const Declarations& parameters, const std::vector<int>& members,
                 const std::function<bool(const Parameter&)>& whole);

  int owners_;
  std::vector<Bucket> buckets_;
  std::vector<int> home_;
  std::vector<std::vector<int64_t>> borders_;  // [parameter][owners + 1]
};

}  // namespace mudd
