#include "mudd/params/param_store.h"

#include "mudd/base/check.h"
#include "mudd/params/units.h"

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
    if (!deals(i)) parameters_->hold(i, cut_->own(i).begin, cut_->own(i).end);
}

void ParamStore::set_experts(std::shared_ptr<const dist::ExpertGroup> group) {
  check(!allocated() && !cut_, "parameter",
        "experts: declare them before the parameters are sharded and allocated");
  experts_ = std::move(group);
  for (int i = 0; i < parameters_->count(); ++i) {
    if (!deals(i)) continue;
    const Parameter& p = parameters_->at(i);
    const int64_t ranks = experts_->ranks(), experts = p.stack(), part = p.size() / ranks;
    check(experts % ranks == 0, "mesh", "expert: ", ranks, " ranks do not divide the ", experts, " experts of ",
          p.name);
    check(part % kUnitElements == 0, "mesh", "expert: the ", experts / ranks, " experts of a rank in ", p.name,
          " have ", part, " numbers; expected a multiple of ", kUnitElements, " (docs/parallel.md)");
    parameters_->hold(i, experts_->me() * part, (experts_->me() + 1) * part);
  }
}

}  // namespace mudd
