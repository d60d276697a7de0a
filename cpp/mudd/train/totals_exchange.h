// TotalsExchange: the one message of a step in which ranks tell each other what they have added up, so that all of
// them judge the same totals (StepTotals).
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
  // The elements of a parameter whose gradient is summed by a rank.
  using PartOf = std::function<Part(int parameter, int rank)>;

  TotalsExchange(const Executor& executor, dist::Comm& comm, PartOf part);

  // Makes the totals those of the whole batch, alike everywhere. summed: loss, count, auxiliary loss and metrics
  // are so already.
  void run(StepTotals& totals, bool summed);
  // Whether it is so on any rank.
  bool any(bool here);
  // Makes the values their sums over ranks, by the tree.
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
  std::vector<double> record_, records_;  // here, and of all processes
  std::vector<double> sums_;              // of add, of all processes
  std::vector<char> flags_of_all_;
};

}  // namespace mudd
