#include "mudd/base/activation.h"

#include <iterator>

namespace mudd {
namespace {

constexpr const char* kNames[] = {"none", "silu", "gelu_tanh", "gelu_erf", "relu", "squared_relu"};

}  // namespace

std::vector<std::string> activation_names() { return {std::begin(kNames), std::end(kNames)}; }

const char* name_of(Activation a) { return kNames[static_cast<int>(a)]; }

}  // namespace mudd
