// The pointwise activations that linear, glu and activation know by name; formulas in simd/activations.h.
#pragma once

#include <cstdint>
#include <string>

namespace mudd {

enum class Activation : uint8_t { none, silu, gelu_tanh, gelu_erf, relu, squared_relu };

// "none", "silu", "gelu_tanh", "gelu_erf", "relu", "squared_relu"; `op` is named in the message otherwise.
Activation parse_activation(const std::string& name, const char* op);
const char* name_of(Activation a);

}  // namespace mudd
