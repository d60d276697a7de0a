#include "mudd/optim/optimizer_spec.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "mudd/base/check.h"

namespace mudd {

// <name>_spec() is in <name>.cc of the optimizer's folder.
#define MUDD_OPTIMIZER(name) const OptimizerSpec& name##_spec();
#include "mudd_optimizers.inc"
#undef MUDD_OPTIMIZER

namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

double checked_number(const char* where, const Setting& setting, const SettingValue& value) {
  const auto* whole = std::get_if<int64_t>(&value);
  const auto* real = std::get_if<double>(&value);
  check(whole || real, where, setting.name, ": expected a number");
  const double number = whole ? static_cast<double>(*whole) : *real;
  const bool fits = setting.below_high ? number < setting.high : number <= setting.high;
  check(std::isfinite(number) && number >= setting.low && fits, where, setting.name, ": expected a number in [",
        setting.low, ", ", setting.high, setting.below_high ? ")" : "]", ", got ", number);
  return number;
}

SettingValue checked(const char* where, const Setting& setting, const SettingValue& value) {
  if (std::holds_alternative<double>(setting.fallback)) return checked_number(where, setting, value);
  check(value.index() == setting.fallback.index(), where, setting.name,
        ": expected a value of its default's type");
  if (std::holds_alternative<int64_t>(value)) checked_number(where, setting, value);
  if (const auto* word = std::get_if<std::string>(&value))
    check(std::ranges::find(setting.choices, *word) != setting.choices.end(), where, setting.name,
          ": expected one of ", joined(setting.choices), ", got '", *word, "'");
  return value;
}

}  // namespace

Setting fraction(std::string name, double fallback, std::string help, std::string field) {
  return {.name = name,
          .fallback = fallback,
          .help = std::move(help),
          .field = field.empty() ? name : std::move(field),
          .in_groups = true,
          .high = 1,
          .below_high = true};
}

const Setting* OptimizerSpec::find(const std::string& setting) const {
  const auto found = std::ranges::find(settings, setting, &Setting::name);
  return found == settings.end() ? nullptr : &*found;
}

bool OptimizerSpec::can_take(const Parameter& parameter) const {
  return takes.empty() || (std::ranges::find(takes, parameter.role) != takes.end() && parameter.shape.size() >= 2);
}

OptimizerSettings::OptimizerSettings(const OptimizerSpec& spec, const SettingValues& given, DType moment)
    : spec_(spec), moment_(moment) {
  const char* where = spec.name.c_str();
  check(moment == DType::f32 || moment == DType::bf16, where, "moment: expected float32 or bfloat16, got ",
        name_of(moment));
  for (const Setting& setting : spec.settings) values_[setting.name] = setting.fallback;
  for (const auto& [name, value] : given) {
    const Setting* setting = spec.find(name);
    check(setting != nullptr, where, "there is no setting '", name, "'");
    values_[name] = checked(where, *setting, value);
  }
}

std::span<const OptimizerSpec* const> optimizer_specs() {
  static const OptimizerSpec* const specs[] = {
#define MUDD_OPTIMIZER(name) &name##_spec(),
#include "mudd_optimizers.inc"
#undef MUDD_OPTIMIZER
  };
  return specs;
}

const OptimizerSpec& optimizer_spec(const std::string& name) {
  std::vector<std::string> known;
  for (const OptimizerSpec* spec : optimizer_specs()) {
    known.push_back(spec->name);
    known.insert(known.end(), spec->aliases.begin(), spec->aliases.end());
    if (std::ranges::find(known, name) != known.end()) return *spec;
  }
  fail("optimizer", "name: expected one of ", joined(known), ", got '", name, "'");
}

}  // namespace mudd
