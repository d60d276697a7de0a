// Draws the next token from the logits of a position: a pure function of the logits, the options and (seed,
// position). With exp and random numbers of this project, generation is reproducible on every machine.
#pragma once

#include <cstdint>

namespace mudd {

struct SampleOptions {
  double temperature = 1.0;  // divides the logits; 0: greedy (lowest id among equals)
  int64_t top_k = 0;         // only the k most likely tokens; 0: all
  double top_p = 1.0;        // nucleus sampling: only the most likely tokens whose probabilities first reach p
  uint64_t seed = 0;
};

// Sample from logits[n], n >= 1. Tokens with equal logits are ranked by id, the lower one first. Error for NaN
// logits.
int64_t sample_token(const float* logits, int64_t n, int64_t position, const SampleOptions& options);

}  // namespace mudd
