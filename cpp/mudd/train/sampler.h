// Drawing the next token from a row of logits. A pure function of the row, the options and (seed, position), with
// our own exp and random numbers, so a text can be written again anywhere.
#pragma once

#include <cstdint>

namespace mudd {

struct SampleOptions {
  double temperature = 1.0;  // divides the logits; 0: the likeliest token (lowest id among equals)
  int64_t top_k = 0;         // only the k likeliest; 0: all
  double top_p = 1.0;        // only the likeliest tokens whose probabilities first reach p
  uint64_t seed = 0;
};

// logits[n], n >= 1. Ties in the order of likelihood go to the lower id. Error for NaN logits.
int64_t sample_token(const float* logits, int64_t n, int64_t position, const SampleOptions& options);

}  // namespace mudd
