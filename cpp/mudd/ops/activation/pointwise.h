// Activations that only the op `activation` has, by their names in jax.nn: no matmul applies them in its
// epilogue.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace mudd {

enum class Pointwise : uint8_t {
  relu6,
  sigmoid,
  tanh,
  softplus,
  log_sigmoid,
  soft_sign,
  leaky_relu,
  hard_sigmoid,
  hard_silu,
  hard_tanh,
  elu,
  selu,
  squareplus,
  mish,
  sparse_plus,
  sparse_sigmoid,
};

constexpr const char* kPointwiseNames[] = {
    "relu6",     "sigmoid",   "tanh", "softplus", "log_sigmoid", "soft_sign", "leaky_relu",  "hard_sigmoid",
    "hard_silu", "hard_tanh", "elu",  "selu",     "squareplus",  "mish",      "sparse_plus", "sparse_sigmoid",
};

// Return the activation with a name in kPointwiseNames; none for another name.
inline std::optional<Pointwise> find_pointwise(const std::string& name) {
  for (uint8_t i = 0; i < std::size(kPointwiseNames); ++i)
    if (name == kPointwiseNames[i]) return static_cast<Pointwise>(i);
  return std::nullopt;
}

constexpr float kSeluScale = 1.0507009873554805f, kSeluAlpha = 1.6732632423543772f;  // Klambauer et al. 2017

}  // namespace mudd
