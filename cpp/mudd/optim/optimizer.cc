#include "mudd/optim/optimizer.h"

#include "mudd/base/check.h"
#include "mudd/optim/adamw/adamw.h"
#include "mudd/optim/lion/lion.h"
#include "mudd/optim/muon/muon.h"
#include "mudd/optim/sgd/sgd.h"
#include "mudd/optim/update.h"

namespace mudd {

std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const OptimizerSettings& settings) {
  check(settings.moment == DType::f32 || settings.moment == DType::bf16, "optimizer",
        "moment: expected float32 or bfloat16, got ", name_of(settings.moment));
  if (name == "adamw" || name == "adam_pax") return adamw_optimizer(settings);
  if (name == "lion") return lion_optimizer(settings);
  if (name == "sgd") return sgd_optimizer(settings);
  check(name == "muon", "optimizer", "name: expected adamw, adam_pax, lion, sgd or muon, got '", name, "'");
  return muon_optimizer(settings);
}

}  // namespace mudd
