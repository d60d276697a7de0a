// BatchPart: which samples this process takes of every batch, a contiguous part of it that its graph runs cut
// further.
#pragma once

#include <cstdint>

namespace mudd {

// The samples of one graph run: `count` of them from `in_batch` of its batch, which is `first` of the whole
// training.
struct RunSamples {
  int64_t in_batch = 0, first = 0, count = 0;
};

struct BatchPart {
  int64_t begin = 0;  // in the batch
  int64_t batch = 0;  // samples of the whole batch; 0: this part is all of it

  // Graph run `run` of `runs` in step `step`, `count` samples each.
  RunSamples of(int64_t step, int run, int runs, int64_t count) const {
    const int64_t whole = batch > 0 ? batch : runs * count, at = begin + run * count;
    return {.in_batch = at, .first = step * whole + at, .count = count};
  }
};

}  // namespace mudd
