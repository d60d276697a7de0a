// BatchPart: which samples this process takes of every batch: a contiguous part of it that its graph runs cut
// further, or, where processes sum after each run, its part of the samples of each run.
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
  int64_t step = 0;   // samples from the begin of a run to that of the next one; 0: those of a run

  // Graph run `run` of `runs` in a training step, `count` samples each.
  RunSamples of(int64_t train_step, int run, int runs, int64_t count) const {
    const int64_t whole = batch > 0 ? batch : runs * count, at = begin + run * (step > 0 ? step : count);
    return {.in_batch = at, .first = train_step * whole + at, .count = count};
  }
};

}  // namespace mudd
