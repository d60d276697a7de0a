// ExpertParts: which rank sums and updates which part of the stacks of experts that are dealt out. The ranks with
// the same experts share them out by units (params/units.h), as all ranks do with other parameters (ownership.h).
#pragma once

#include <functional>
#include <vector>

#include "mudd/params/param_store.h"

namespace mudd {

class ExpertParts {
 public:
  // whole: parameters whose matrices have one owner each (an optimizer that needs them whole).
  ExpertParts(const ParamStore& store, const std::function<bool(const Parameter&)>& whole);

  bool deals(int parameter) const { return !parts_[parameter].empty(); }
  // Of a stack that is dealt out.
  Part part(int parameter, int rank) const { return parts_[parameter][rank]; }

 private:
  std::vector<std::vector<Part>> parts_;  // [parameter][rank]; empty: not dealt out
};

}  // namespace mudd
