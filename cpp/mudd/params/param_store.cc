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

}  // namespace mudd
