// BatchPart: the samples of every batch that this process trains on: a contiguous part that its graph runs
// split further, or, if processes sum after each run, a part of the samples of each run.
#pragma once

#include <cstdint>

namespace mudd {

// The samples of one graph run: `count` of them from `in_batch` of its batch, which starts at sample `first` of
// the training.
struct RunSamples {
  int64_t in_batch = 0, first = 0, count = 0;
};

struct BatchPart {
  int64_t begin = 0;  // in the batch
  int64_t batch = 0;  // samples of the whole batch; 0: this part is all of it
  int64_t step = 0;   // samples from the start of a run to the start of the next; 0: the samples of a run

  // Return graph run `run` of `runs` in a training step, `count` samples each.
  RunSamples of(int64_t train_step, int run, int runs, int64_t count) const {
    const int64_t whole = batch > 0 ? batch : runs * count, at = begin + run * (step > 0 ? step : count);
    return {.in_batch = at, .first = train_step * whole + at, .count = count};
  }
};

}  // namespace mudd
