// The sums of parameter gradients over the graph runs of a step. Each use of a parameter has a binary counter of
// sums (contracts 2). A sum is a whole buffer, or only the rows of a table that graph runs have read. The last
// level of every use, the total, is in one flat buffer, in the order in which the uses become final.
//
// If the store is sharded, the flat buffer has the gradients of one run only, bucket by bucket. Processes sum from
// it, and backward reuses its memory. The sums over runs then contain only the rank's slices.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "mudd/base/arena.h"
#include "mudd/graph/planner.h"
#include "mudd/params/param_store.h"

namespace mudd {

// Allocates the zeroed, cache-line aligned gradient buffer; it must live as long as the sums.
using GradientMemory = std::function<std::byte*(int64_t bytes)>;

struct GradientOptions {
  int runs = 1;                // graph runs of a step, a power of two
  bool by_rows = true;         // tables of which a step reads few rows store only those
  GradientMemory memory = {};  // empty: a separate arena
  int64_t bucket_bytes = 0;    // if the store is sharded: see cut_buckets
};

class GradientSums {
 public:
  GradientSums() = default;
  // Allocate sums for every use of a parameter that leads to a loss.
  GradientSums(const Graph& graph, const Plan& plan, const ParamStore& store, const GradientOptions& options);

  // Point `sink` at the sums of one use of a parameter, for graph run `run` of the step.
  void point(GradSink& sink, int parameter, int use, int run);

  // After the last run of a step: one total for each use that leads to the loss, to be summed in order. It is
  // either whole or a row list; the other is null.
  int uses(int parameter) const { return sums_.empty() ? 0 : static_cast<int>(sums_[parameter].size()); }
  // Return the address of element 0 of the parameter, which may have no memory: a sharded store has only the
  // own slice, and a sharded stack of experts only the own experts.
  const float* whole(int parameter, int use) const {
    if (cut_) return slices_[parameter][use].back() - cut_->own(parameter).begin;
    const float* held = last(parameter, use).all;
    return held ? held - first_[parameter] : nullptr;
  }
  const RowTotal* rows(int parameter, int use) const;

  // Return the elements between the sums of the ranks whose tokens a sharded expert sees, see GradSink; 0: one
  // sum. whole() returns the first.
  int64_t rank_stride(int parameter) const { return strides_[parameter]; }

  // If the store is sharded: the buckets; and add() adds the own slice of run `run` to its sums.
  bool cut() const { return cut_ != nullptr; }
  const std::vector<GradientBucket>& buckets() const { return buckets_; }
  void take(int parameter, int use, int run);

  // The place of a use's total in the flat buffer.
  struct TotalPlace {
    int64_t offset = 0;
    int64_t by_rows = 0;  // rows that fit a row list; 0: the total is whole
  };
  TotalPlace place(int parameter, int use) const;
  // Return the total of a use of `parameter` at `place` of another process's buffer.
  static RowGradient rows_at(const Parameter& parameter, std::byte* plane, TotalPlace place);

  std::span<std::byte> plane() const { return {plane_, static_cast<size_t>(plane_bytes_)}; }
  int64_t bytes() const { return plane_bytes_ + waiting_bytes_; }
  // Release the separate memory until the next run.
  void release();

 private:
  struct Sum {
    float* all = nullptr;
    RowGradient rows;
    int64_t offset = 0;  // into the flat buffer (the last level) or into waiting_ (the others)
  };

  void book(std::vector<Sum>& levels, const Parameter& parameter, int64_t elements, int64_t rows_per_run,
            bool by_rows);
  void place(Sum& sum, std::byte* memory);
  static RowGradient rows_at(RowGradient sizes, std::byte* memory);
  void book_cut(const Plan& plan, const ParamStore& store, int64_t bucket_bytes);
  void place_slices();
  const Sum& last(int parameter, int use) const { return sums_[parameter][use].back(); }

  int runs_ = 1;
  std::byte* plane_ = nullptr;
  int64_t plane_bytes_ = 0, waiting_bytes_ = 0;
  Arena own_, waiting_;
  std::vector<std::vector<std::vector<Sum>>> sums_;  // [parameter][use][level of the binary counter]
  std::vector<std::vector<RowTotal>> totals_;        // [parameter][use], for row lists
  std::vector<int64_t> first_;                       // the first element in the sums of a parameter
  std::vector<int64_t> strides_;                     // of each parameter, see rank_stride
  const OwnSlices* cut_ = nullptr;
  std::vector<GradientBucket> buckets_;
  std::vector<std::vector<std::vector<float*>>> slices_;  // [parameter][use][level of the binary counter]
};

}  // namespace mudd
