#include "mudd/optim/optimizer_spec.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "mudd/base/check.h"

namespace mudd {

// <name>_spec() is in <name>.cc of the optimizer's folder.
#define MUDD_OPTIMIZER(name) const OptimizerSpec& name##_spec();
#include "mudd_optimizers.inc"
#undef MUDD_OPTIMIZER

Setting fraction(const std::string& name, double fallback, std::string help, const std::string& field) {
  return {option::number(name, fallback, from_to_below(0, 1), std::move(help)), field.empty() ? name : field, "",
          true};
}

bool OptimizerSpec::can_take(const Parameter& parameter) const {
  return takes.empty() || (std::ranges::find(takes, parameter.role) != takes.end() && parameter.shape.size() >= 2);
}

OptimizerSettings::OptimizerSettings(const OptimizerSpec& spec, const OptionValues& given, DType moment,
                                     DType second)
    : spec_(spec), moment_(moment), second_(second) {
  const char* where = spec.name.c_str();
  check(moment == DType::f32 || moment == DType::bf16, where, "moment: expected float32 or bfloat16, got ",
        name_of(moment));
  check(second == DType::f32 || (second == DType::bf16 && (spec.narrow_second || spec.moments < 2)), where,
        "second: expected float32", spec.narrow_second ? " or bfloat16" : "", ", got ", name_of(second));
  values_ = option::checked(where, spec.settings, given);
  for (const Setting& setting : spec.settings) values_.try_emplace(setting.name, setting.fallback);
}

std::span<const OptimizerSpec* const> optimizer_specs() {
  static const OptimizerSpec* const specs[] = {
#define MUDD_OPTIMIZER(name) &name##_spec(),
#include "mudd_optimizers.inc"
#undef MUDD_OPTIMIZER
  };
  return specs;
}

namespace {

struct Added {
  std::mutex guard;
  std::vector<const OptimizerSpec*> specs;
};

Added& added() {
  static Added all;
  return all;
}

}  // namespace

void add_optimizer_spec(const OptimizerSpec& spec) {
  const std::lock_guard lock(added().guard);
  added().specs.push_back(&spec);
}

const OptimizerSpec& optimizer_spec(const std::string& name) {
  {
    const std::lock_guard lock(added().guard);
    const auto& all = added().specs;
    const auto found =
        std::find_if(all.rbegin(), all.rend(), [&](const auto* spec) { return spec->name == name; });
    if (found != all.rend()) return **found;
  }
  std::vector<std::string> known;
  for (const OptimizerSpec* spec : optimizer_specs()) {
    known.push_back(spec->name);
    known.insert(known.end(), spec->aliases.begin(), spec->aliases.end());
    if (std::ranges::find(known, name) != known.end()) return *spec;
  }
  fail("optimizer", "name: expected ", option::word("name", known[0], known, "").expected(), ", got '", name, "'");
}

}  // namespace mudd
