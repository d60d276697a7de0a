// The elementwise optimizer of a name, with the factors of its kernels.
#pragma once

#include <memory>
#include <string>

#include "mudd/optim/update.h"

namespace mudd::test {

inline std::unique_ptr<Elementwise> make_elementwise(const std::string& name, const OptionValues& settings = {},
                                                     DType moment = DType::f32) {
  std::unique_ptr<Optimizer> made = make_optimizer(name, settings, moment);
  return std::unique_ptr<Elementwise>(&dynamic_cast<Elementwise&>(*made.release()));
}

}  // namespace mudd::test
