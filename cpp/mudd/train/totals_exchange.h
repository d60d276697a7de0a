// TotalsExchange: the one message of a step in which ranks exchange their sums, so that all of them decide on
// the same totals (StepTotals).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "mudd/dist/comm.h"
#include "mudd/graph/executor.h"
#include "mudd/train/step_totals.h"

namespace mudd {

class TotalsExchange {
 public:
  // Returns the elements of a parameter whose gradient a rank sums.
  using PartOf = std::function<Part(int parameter, int rank)>;

  TotalsExchange(const Executor& executor, dist::Comm& comm, PartOf part);

  // Replace the totals by the totals of the whole batch, equal on all ranks. summed: loss, count, auxiliary
  // loss and metrics are global already.
  void run(StepTotals& totals, bool summed);
  // Return true if `here` is true on any rank.
  bool any(bool here);
  // Replace the values by their sums over ranks, by the tree.
  void add(std::span<double> values);

 private:
  void book_records(const StepTotals& totals);
  void add_records(StepTotals& totals, bool summed) const;
  template <class Body>
  void over_blocks(int rank, Body body) const;

  const Executor& executor_;
  dist::Comm& comm_;
  PartOf part_;
  std::vector<int64_t> first_block_;      // of each parameter in the totals; -1: no gradient
  std::vector<double> record_, records_;  // of this process, and of all
  std::vector<double> sums_;              // for add, of all processes
  std::vector<char> flags_of_all_;
};

}  // namespace mudd
