// The pointwise activations of linear, glu and activation, by name; formulas in simd/activations.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mudd {

enum class Activation : uint8_t { none, silu, gelu_tanh, gelu_erf, relu, squared_relu };

// The names of all, in the order of the enum.
std::vector<std::string> activation_names();
const char* name_of(Activation a);

}  // namespace mudd
