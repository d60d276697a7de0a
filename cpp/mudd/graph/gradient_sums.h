// Where the gradients of parameters are summed over the runs of a step: per use of a parameter a binary counter of
// sums (contracts 2), each a whole plane or the rows of a table that runs have touched. The last level of every
// use, which holds the total, lies in one flat plane, in the order in which the uses become final.
//
// Where the store is cut, the plane has the gradients of one run alone, bucket by bucket: memory that processes
// sum from, and that is taken again while backward goes on. The sums over runs are then of the own slices.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "mudd/base/arena.h"
#include "mudd/graph/planner.h"
#include "mudd/params/param_store.h"

namespace mudd {

// Gives the flat plane its memory: zeros, on a cache line, and there for as long as the sums are.
using GradientMemory = std::function<std::byte*(int64_t bytes)>;

struct GradientOptions {
  int runs = 1;                // graph runs of a step, a power of two
  bool by_rows = true;         // tables of which a step reads few rows keep only those
  GradientMemory memory = {};  // empty: an arena of its own
  int64_t bucket_bytes = 0;    // where the store is cut: see cut_buckets
};

class GradientSums {
 public:
  GradientSums() = default;
  // Room for every use that leads to a loss.
  GradientSums(const Graph& graph, const Plan& plan, const ParamStore& store, const GradientOptions& options);

  // Points the sink of one use at its sums for run `run` of the step.
  void point(GradSink& sink, int parameter, int use, int run);

  // After the last run of a step: one total per use that leads to the loss, to be summed in order. It is either
  // whole or given by its rows, the other is null.
  int uses(int parameter) const { return sums_.empty() ? 0 : static_cast<int>(sums_[parameter].size()); }
  // Where element 0 of the parameter is, or would be: where the store is cut only the own slice is there, and of a
  // stack that is dealt out only the own experts.
  const float* whole(int parameter, int use) const {
    if (cut_) return slices_[parameter][use].back() - cut_->own(parameter).begin;
    const float* held = last(parameter, use).all;
    return held ? held - first_[parameter] : nullptr;
  }
  const RowTotal* rows(int parameter, int use) const;

  // Elements between the sums of the ranks whose tokens a dealt out expert sees, see GradSink; 0: one sum. The
  // first of them is where whole() points.
  int64_t rank_stride(int parameter) const { return strides_[parameter]; }

  // Where the store is cut: the buckets, and adds the own slice of what the plane has for run `run` to its sums.
  bool cut() const { return cut_ != nullptr; }
  const std::vector<GradientBucket>& buckets() const { return buckets_; }
  void take(int parameter, int use, int run);

  // Where the total of a use lies in the flat plane.
  struct TotalPlace {
    int64_t offset = 0;
    int64_t by_rows = 0;  // 1: by its rows
  };
  TotalPlace place(int parameter, int use) const;
  // The total of a use of `parameter` that lies at `place` of another process's plane.
  static RowGradient rows_at(const Parameter& parameter, std::byte* plane, TotalPlace place);

  std::span<std::byte> plane() const { return {plane_, static_cast<size_t>(plane_bytes_)}; }
  int64_t bytes() const { return plane_bytes_ + waiting_bytes_; }
  // Memory of its own goes back to the system until the next run.
  void release();

 private:
  struct Sum {
    float* all = nullptr;
    RowGradient rows;
    int64_t offset = 0;  // into the plane (the last level) or into waiting_ (the others)
  };

  void book(std::vector<Sum>& levels, const Parameter& parameter, int64_t elements, int64_t rows_per_run,
            bool by_rows);
  void place(Sum& sum, std::byte* memory);
  void book_cut(const Plan& plan, const ParamStore& store, int64_t bucket_bytes);
  void place_slices();
  const Sum& last(int parameter, int use) const { return sums_[parameter][use].back(); }

  int runs_ = 1;
  std::byte* plane_ = nullptr;
  int64_t plane_bytes_ = 0, waiting_bytes_ = 0;
  Arena own_, waiting_;
  std::vector<std::vector<std::vector<Sum>>> sums_;  // [parameter][use][level of the binary counter]
  std::vector<std::vector<RowTotal>> totals_;        // [parameter][use], of those by rows
  std::vector<int64_t> first_;                       // element that sums of a parameter begin with
  std::vector<int64_t> strides_;                     // of each parameter, see rank_stride
  const OwnSlices* cut_ = nullptr;
  std::vector<GradientBucket> buckets_;
  std::vector<std::vector<std::vector<float*>>> slices_;  // [parameter][use][level of the binary counter]
};

}  // namespace mudd
