// The sources of a weighted mixture, by sample index.
//
// Source k of m has the integer weight w_k, and the weights add up to W. The j-th sample of source k (from 1) has
// a window of sample indices of its phase (from 0). It starts at floor((j - 1) W / w_k) and ends at ceil(j W /
// w_k) - 1.
//
// If every sample is in its window, the count of k after any n samples is floor(n w_k / W) or ceil(n w_k / W). It
// differs from n w_k / W by less than one. The next sample belongs to the source whose open window ends first, and
// of equal ones to the first listed. With windows of this form, this rule never misses an end (S. Baruah, N.
// Cohen, C. Plaxton, D. Varvel, "Proportionate progress", Algorithmica 15, 1996, for one resource).
//
// The sequence has the period W: 10 for the weights 0.7, 0.2 and 0.1. Its state after n samples is the counts
// alone. So it is computed in blocks of kBlock samples from the counts at their start, which are kept. Any sample
// is found from its index, in any order of questions. In a long period, the first question about a late block
// computes the blocks before it, about 50 ns a sample.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace mudd {

struct MixPlace {
  int32_t source = 0;
  int64_t index = 0;  // of the sample in its source
};

// Samples with one set of weights, from sample 0.
class MixOrder {
 public:
  static constexpr int64_t kBlock = 1 << 16;

  // Weights of at least 0 with a sum in [1, 2^31).
  explicit MixOrder(std::vector<int64_t> weights);

  MixPlace place(int64_t sample);

  // Add the samples of each source among the first `samples` to `counts`.
  void add_counts(int64_t samples, std::vector<int64_t>& counts);

 private:
  void open(int64_t block);  // of the period
  void compute(int64_t block);

  std::vector<int64_t> weights_;
  int64_t period_ = 0;
  std::vector<std::vector<int64_t>> starts_;  // counts in the period at the start of each known block
  int64_t opened_ = -1;                       // the block in the next two
  std::vector<uint16_t> sources_;
  std::vector<int32_t> indices_;  // of a sample of its source in the period
};

struct MixPhase {
  int64_t first_sample = 0;
  std::vector<int64_t> weights;
};

// Samples whose weights change at given samples; each phase counts from its first sample.
class MixSchedule {
 public:
  // The first phase starts at sample 0, and each later one after the one before. All have the same sources, at
  // most 65,535.
  explicit MixSchedule(std::vector<MixPhase> phases);

  int64_t n_sources() const { return n_sources_; }

  MixPlace place(int64_t sample);

  // Return the samples of each source among the first `samples`.
  std::vector<int64_t> counts(int64_t samples);

 private:
  struct Counted {
    int64_t first_sample;
    std::vector<int64_t> before;  // the counts at the first sample
    MixOrder order;
  };
  Counted& phase_of(int64_t sample);

  int64_t n_sources_ = 0;
  std::vector<Counted> phases_;
};

}  // namespace mudd
