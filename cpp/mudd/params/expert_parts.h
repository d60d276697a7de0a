// ExpertParts: the parts of sharded stacks of experts that each rank sums and updates. The ranks with the same
// experts divide them by units (units.h), as all ranks do with other parameters.
#pragma once

#include <vector>

#include "mudd/dist/expert_group.h"
#include "mudd/params/slices.h"

namespace mudd {

// Return true if a parameter is a stack of experts that is sharded across the group (null: not sharded).
inline bool is_dealt(const dist::ExpertGroup* group, const Parameter& p) {
  return group && group->ranks() > 1 && p.shape.size() == 3;
}

class ExpertParts {
 public:
  // Without sharded experts.
  ExpertParts() = default;
  ExpertParts(const Declarations& parameters, const dist::ExpertGroup* group, const WholeMatrices& whole);

  bool deals(int parameter) const { return !parts_.empty() && !parts_[parameter].empty(); }
  // Return the part of a sharded stack.
  Part part(int parameter, int rank) const { return parts_[parameter][rank]; }
  Part own(int parameter) const { return part(parameter, rank_); }

 private:
  int rank_ = 0;
  std::vector<std::vector<Part>> parts_;  // [parameter][rank]; empty: not sharded
};

}  // namespace mudd
