// HeldExperts: gradients and weights of sharded experts, between the ranks that have the same ones.
#pragma once

#include <memory>
#include <vector>

#include "mudd/dist/comm.h"
#include "mudd/graph/executor.h"
#include "mudd/params/expert_parts.h"

namespace mudd {

class HeldExperts {
 public:
  // Both must outlive it.
  HeldExperts(const Executor& executor, dist::Comm& comm, ExpertParts parts)
      : executor_(executor), comm_(comm), parts_(std::move(parts)) {}

  bool deals(int parameter) const { return parts_.deals(parameter); }
  // Return the part of a stack that a rank sums and updates.
  Part part(int parameter, int rank) const { return parts_.part(parameter, rank); }

  // A stack whose gradient, for the local experts, starts at element `at` of a buffer.
  struct Gradient {
    int parameter;
    int64_t at;
  };
  // Start to add them over the holders, each of which gets the sum of its part; null: no other rank has these
  // experts.
  std::shared_ptr<dist::Pending> sum(float* plane, const std::vector<Gradient>& gradients);
  // Send the weights that this rank has updated to the other holders, and receive the weights that they have
  // updated.
  void send_weights();

 private:
  const dist::ExpertGroup* group() const { return executor_.store().experts(); }
  bool alone() const { return !group() || group()->holders() == 1; }
  // List the parts of the holders in memory in which the local experts of a stack start at element `at`.
  void list(int parameter, int64_t at, std::vector<dist::OwnedRange>& pieces) const;

  const Executor& executor_;
  dist::Comm& comm_;
  ExpertParts parts_;
};

}  // namespace mudd
