// ExpertGroup: the adjacent ranks that share the experts of every mixture: member m of n has the m-th part of
// each stack of experts. A world of several groups has several replicas of every expert.
#pragma once

#include <numeric>
#include <span>
#include <vector>

#include "mudd/base/check.h"
#include "mudd/dist/comm.h"

namespace mudd::dist {

class ExpertGroup {
 public:
  // For a plan, as rank `rank` of `world` with `ranks` ranks a group: exchanges are not possible. room: see
  // room().
  ExpertGroup(int ranks, int rank, int world, double room = 0)
      : ranks_(ranks), rank_(rank), world_(world), room_(room) {
    check(room >= 0, "mesh", "expert_room: expected at least 0, got ", room);
    check(ranks >= 1 && world % ranks == 0 && rank >= 0 && rank < world, "mesh", "expert: expected a divisor of ",
          world, " ranks, got ", ranks);
    members_.resize(static_cast<size_t>(ranks));
    std::iota(members_.begin(), members_.end(), rank / ranks * ranks);
    for (int r = me(); r < world; r += ranks) holders_.push_back(r);
  }
  // comm must outlive it.
  ExpertGroup(Comm& comm, int ranks, double room = 0) : ExpertGroup(ranks, comm.rank(), comm.world(), room) {
    comm_ = &comm;
  }

  int ranks() const { return ranks_; }
  int me() const { return rank_ % ranks_; }  // the index of this member
  int rank() const { return rank_; }
  int world() const { return world_; }
  // Return the count of ranks with the same experts, and the index of `rank` among them (ascending).
  int holders() const { return world_ / ranks_; }
  int holder(int rank) const { return rank / ranks_; }
  std::span<const int> holders_of_mine() const { return holders_; }

  // Return the token rows that a training graph has memory for in a layer, as a multiple of an even load. 0:
  // address space for all that the members can send; a plan then expects twice an even load.
  double room() const { return room_; }

  // Set how many rows above the plan a run may use in that address space: 0 none, 1 (the default) all of them.
  void set_spare(double spare) { spare_ = spare; }
  int64_t rows_allowed(int64_t planned, int64_t booked) const {
    return planned + static_cast<int64_t>(spare_ * static_cast<double>(booked - planned));
  }

  // Comm::exchange among the members.
  void exchange(std::span<const Piece> sends, std::span<const Piece> receives) const {
    if (!comm_) throw StateError("[mesh] expert: this model is only planned");
    comm_->exchange(members_, sends, receives);
  }

 private:
  int ranks_, rank_, world_;
  double room_, spare_ = 1;
  Comm* comm_ = nullptr;
  std::vector<int> members_, holders_;
};

}  // namespace mudd::dist
