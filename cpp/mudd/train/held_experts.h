// HeldExperts: gradients and weights of experts that are dealt out, between the ranks that hold the same ones.
#pragma once

#include <memory>
#include <vector>

#include "mudd/dist/comm.h"
#include "mudd/graph/executor.h"
#include "mudd/params/expert_parts.h"

namespace mudd {

class HeldExperts {
 public:
  // Both outlive it.
  HeldExperts(const Executor& executor, dist::Comm& comm, ExpertParts parts)
      : executor_(executor), comm_(comm), parts_(std::move(parts)) {}

  bool deals(int parameter) const { return parts_.deals(parameter); }
  // What a rank sums and updates of a stack.
  Part part(int parameter, int rank) const { return parts_.part(parameter, rank); }

  // A stack whose gradient, of the experts that are here, begins at element `at` of a plane.
  struct Gradient {
    int parameter;
    int64_t at;
  };
  // Begins to add them over the holders, each of which gets the sum of its part; null: nobody else holds these
  // experts.
  std::shared_ptr<dist::Pending> sum(float* plane, const std::vector<Gradient>& gradients);
  // Gives the other holders the weights that this rank has updated, and takes in theirs.
  void send_weights();

 private:
  const dist::ExpertGroup* group() const { return executor_.store().experts(); }
  bool alone() const { return !group() || group()->holders() == 1; }
  // The parts of the holders in memory where the held experts of a stack begin at element `at`.
  void list(int parameter, int64_t at, std::vector<dist::OwnedRange>& pieces) const;

  const Executor& executor_;
  dist::Comm& comm_;
  ExpertParts parts_;
};

}  // namespace mudd
