#include "mudd/optim/optimizer.h"

#include "mudd/base/check.h"
#include "mudd/optim/adamw/adamw.h"
#include "mudd/optim/lion/lion.h"
#include "mudd/optim/muon/muon.h"
#include "mudd/optim/sgd/sgd.h"
#include "mudd/optim/update.h"

namespace mudd {
namespace {

struct Named {
  const char* name;
  std::unique_ptr<Optimizer> (*make)(const OptimizerSettings& settings);
};

template <auto make>
std::unique_ptr<Optimizer> made(const OptimizerSettings& settings) {
  return make(settings);
}

constexpr Named kOptimizers[] = {{"adamw", made<adamw_optimizer>},
                                 {"adam_pax", made<adamw_optimizer>},
                                 {"lion", made<lion_optimizer>},
                                 {"sgd", made<sgd_optimizer>},
                                 {"muon", made<muon_optimizer>}};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const OptimizerSettings& settings) {
  check(settings.moment == DType::f32 || settings.moment == DType::bf16, "optimizer",
        "moment: expected float32 or bfloat16, got ", name_of(settings.moment));
  std::string known;
  for (const Named& one : kOptimizers) {
    if (name == one.name) return one.make(settings);
    known += (known.empty() ? "" : ", ") + std::string(one.name);
  }
  fail("optimizer", "name: expected one of ", known, ", got '", name, "'");
}

}  // namespace mudd
