#include "mudd/params/param_store.h"

#include "mudd/base/check.h"

namespace mudd {

void ParamStore::allocate(bool booked_only, NodeShare share) {
  check(!allocated(), "parameter", "the parameters are allocated already");
  memory_->settle(booked_only, std::move(share));
  planes_->allocate();
  packs_->allocate();
  parameters_->close();
}

void ParamStore::set_cut(OwnSlices cut, bool holds_slices) {
  check(!allocated(), "parameter", "cut: expected before the parameters are allocated");
  cut_ = std::move(cut);
  gathers_ = holds_slices;
  for (int i = 0; holds_slices && i < parameters_->count(); ++i)
    parameters_->hold(i, cut_->own(i).begin, cut_->own(i).end);
}

}  // namespace mudd
