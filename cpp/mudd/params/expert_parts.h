// ExpertParts: which rank sums and updates which part of the stacks of experts that are dealt out. The ranks with
// the same experts share them out by units (units.h), as all ranks do with other parameters.
#pragma once

#include <vector>

#include "mudd/dist/expert_group.h"
#include "mudd/params/slices.h"

namespace mudd {

// Whether a parameter is a stack of experts that is dealt out to the ranks of the group (null: to nobody).
inline bool is_dealt(const dist::ExpertGroup* group, const Parameter& p) {
  return group && group->ranks() > 1 && p.shape.size() == 3;
}

class ExpertParts {
 public:
  // Nothing is dealt out.
  ExpertParts() = default;
  ExpertParts(const Declarations& parameters, const dist::ExpertGroup* group, const WholeMatrices& whole);

  bool deals(int parameter) const { return !parts_.empty() && !parts_[parameter].empty(); }
  // Of a stack that is dealt out.
  Part part(int parameter, int rank) const { return parts_[parameter][rank]; }
  Part own(int parameter) const { return part(parameter, rank_); }

 private:
  int rank_ = 0;
  std::vector<std::vector<Part>> parts_;  // [parameter][rank]; empty: not dealt out
};

}  // namespace mudd
