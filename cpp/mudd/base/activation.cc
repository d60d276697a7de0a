#include "mudd/base/activation.h"

#include "mudd/base/check.h"

namespace mudd {
namespace {

constexpr const char* kNames[] = {"none", "silu", "gelu_tanh", "gelu_erf", "relu", "squared_relu"};

}  // namespace

Activation parse_activation(const std::string& name, const char* op) {
  for (uint8_t i = 0; i < std::size(kNames); ++i)
    if (name == kNames[i]) return static_cast<Activation>(i);
  fail(op, "activation: expected none, silu, gelu_tanh, gelu_erf, relu or squared_relu, got '", name, "'");
}

const char* name_of(Activation a) { return kNames[static_cast<int>(a)]; }

}  // namespace mudd
