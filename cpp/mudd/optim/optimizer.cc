#include "mudd/optim/optimizer.h"

#include "mudd/base/check.h"
#include "mudd/optim/adamw/adamw.h"
#include "mudd/optim/lion/lion.h"
#include "mudd/optim/muon/muon.h"
#include "mudd/optim/sgd/sgd.h"
#include "mudd/optim/update.h"

namespace mudd {

std::vector<std::unique_ptr<Optimizer>> make_optimizers(const std::string& name,
                                                        const OptimizerSettings& settings) {
  check(settings.moment == DType::f32 || settings.moment == DType::bf16, "optimizer",
        "moment: expected float32 or bfloat16, got ", name_of(settings.moment));
  std::vector<std::unique_ptr<Optimizer>> made;
  if (name == "muon") made.push_back(muon_optimizer(settings));
  if (name == "adamw" || name == "adam_pax" || name == "muon") made.push_back(adamw_optimizer(settings));
  if (name == "lion") made.push_back(lion_optimizer(settings));
  if (name == "sgd") made.push_back(sgd_optimizer(settings));
  check(!made.empty(), "optimizer", "name: expected adamw, adam_pax, lion, sgd or muon, got '", name, "'");
  return made;
}

}  // namespace mudd
