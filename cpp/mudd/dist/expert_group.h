// ExpertGroup: the ranks that hold the experts of every mixture between them, neighbours in rank order: member m
// of n has the m-th part of each stack of experts. A world of several groups holds every expert several times.
#pragma once

#include <numeric>
#include <span>
#include <vector>

#include "mudd/base/check.h"
#include "mudd/dist/comm.h"

namespace mudd::dist {

class ExpertGroup {
 public:
  // Of `ranks` ranks as rank `rank` of `world` sees them, for a plan: nothing can be exchanged.
  ExpertGroup(int ranks, int rank, int world) : ranks_(ranks), rank_(rank), world_(world) {
    check(ranks >= 1 && world % ranks == 0 && rank >= 0 && rank < world, "mesh", "expert: expected a divisor of ",
          world, " ranks, got ", ranks);
    members_.resize(static_cast<size_t>(ranks));
    std::iota(members_.begin(), members_.end(), rank / ranks * ranks);
    for (int r = me(); r < world; r += ranks) holders_.push_back(r);
  }
  // comm outlives it.
  ExpertGroup(Comm& comm, int ranks) : ExpertGroup(ranks, comm.rank(), comm.world()) { comm_ = &comm; }

  int ranks() const { return ranks_; }
  int me() const { return rank_ % ranks_; }  // the number of this member
  int world() const { return world_; }
  // The ranks with the same experts as rank `rank`, ascending, and its number among them.
  int holders() const { return world_ / ranks_; }
  int holder(int rank) const { return rank / ranks_; }
  std::span<const int> holders_of_mine() const { return holders_; }

  // Comm::exchange among the members.
  void exchange(std::span<const Piece> sends, std::span<const Piece> receives) const {
    if (!comm_) throw StateError("[mesh] expert: this model is only planned");
    comm_->exchange(members_, sends, receives);
  }

 private:
  int ranks_, rank_, world_;
  Comm* comm_ = nullptr;
  std::vector<int> members_, holders_;
};

}  // namespace mudd::dist
