// Initial values of parameters. Every element is a pure function of (seed, parameter's name, element index)
// through Philox (contracts 5). It does not depend on threads, the order of parameters, or the rest of the
// model.
#pragma once

#include <cstdint>

#include "mudd/params/param_store.h"

namespace mudd {

// Fill out[0, end - begin) with elements [begin, end) according to parameter.init, with s = parameter.init_scale:
//   normal    mean 0, standard deviation s      uniform   [-s, s)
//   truncated_normal  the normal distribution truncated at two deviations, standard deviation s afterwards
//   constant  s                                 zeros, ones
// An unknown kind, or a spread that is negative or not finite, is an Error.
void initialize(const Parameter& parameter, uint64_t seed, int64_t begin, int64_t end, float* out);

// Fill all weights in the store and refresh its packed copies.
void initialize(ParamStore& store, uint64_t seed);

}  // namespace mudd
