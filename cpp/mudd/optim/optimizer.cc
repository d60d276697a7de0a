#include "mudd/optim/optimizer.h"

namespace mudd {

std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const OptionValues& settings, DType moment,
                                          DType second) {
  const OptimizerSpec& spec = optimizer_spec(name);
  return spec.make(OptimizerSettings(spec, settings, moment, second));
}

}  // namespace mudd
