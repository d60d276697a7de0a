// Initial values of parameters. Every element is a pure function of (seed, parameter's name, element index)
// through Philox (contracts 5): not of threads, the order of parameters, or what else the model holds.
#pragma once

#include <cstdint>

#include "mudd/params/param_store.h"

namespace mudd {

// Fills out[0, end - begin) with elements [begin, end) as parameter.init says, with s = parameter.init_scale:
//   normal    mean 0, standard deviation s      uniform   [-s, s)
//   truncated_normal  the normal distribution cut at two deviations, standard deviation s after the cut
//   constant  s                                 zeros, ones
// An unknown kind, or a scale that is negative or not finite where it is a spread, is an Error.
void initialize(const Parameter& parameter, uint64_t seed, int64_t begin, int64_t end, float* out);

// Fills all weights that the store holds and refreshes its packed copies.
void initialize(ParamStore& store, uint64_t seed);

}  // namespace mudd
