// Where the gradients of parameters are summed over the runs of a step: per use of a parameter a binary counter of
// sums (contracts 2), each a whole plane or the rows of a table that runs have touched.
#pragma once

#include <vector>

#include "mudd/base/arena.h"
#include "mudd/graph/planner.h"
#include "mudd/params/param_store.h"

namespace mudd {

class GradientSums {
 public:
  GradientSums() = default;
  // Room for every use that leads to a loss. runs: graph runs of a step, a power of two; by_rows: tables of which
  // a step reads few rows keep only those. CheckError for a parameter where a node wants something per token.
  GradientSums(const Graph& graph, const Plan& plan, const ParamStore& store, int runs, bool by_rows);

  // Points the sink of one use at its sums for run `run` of the step.
  void point(GradSink& sink, int parameter, int use, int run);

  // After the last run of a step: one plane per use that leads to the loss, to be summed in order. A plane is
  // either whole or given by its rows, the other is null.
  int uses(int parameter) const { return used_.empty() ? 0 : static_cast<int>(used_[parameter].size()); }
  const float* whole(int parameter, int use) const { return last(parameter, use).all; }
  const RowGradient* rows(int parameter, int use) const;

  int64_t bytes() const { return arena_.bytes(); }
  void release() { arena_.release(); }  // the memory goes back to the system until the next run

 private:
  struct Sum {
    float* all = nullptr;
    RowGradient rows;
    int64_t offset = 0;  // into arena_
  };

  int64_t book(std::vector<Sum>& levels, const Parameter& parameter, int64_t rows_per_run, int64_t offset) const;
  void place();
  const Sum& last(int parameter, int use) const { return sums_[parameter][used_[parameter][use]].back(); }

  int runs_ = 1;
  bool by_rows_ = true;
  Arena arena_;
  std::vector<std::vector<std::vector<Sum>>> sums_;  // [parameter][use][level of the binary counter]
  std::vector<std::vector<int>> used_;               // [parameter]: the uses that have sums
};

}  // namespace mudd
