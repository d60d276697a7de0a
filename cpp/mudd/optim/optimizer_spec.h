// OptimizerSpec: the declaration of an optimizer. The folders of cpp/mudd/optim make the table (CMake); Python
// creates its choices, its config fields and its checks from the same table.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mudd/base/kernel_names.h"
#include "mudd/base/option.h"
#include "mudd/base/types.h"
#include "mudd/optim/update_kernels.h"
#include "mudd/params/parameter.h"

namespace mudd {

class Optimizer;
class OptimizerSettings;

// An option of an optimizer, and its config field.
struct Setting : Option {
  std::string field;       // of the config's section optim
  std::string unit = {};   // the unit of an integer
  bool in_groups = false;  // whether a group of optim.groups may set it separately
};

// Return a setting in [0, 1), such as a decay of moments; the config field has the same name unless `field` is
// set.
Setting fraction(const std::string& name, double fallback, std::string help, const std::string& field = "");

struct OptimizerSpec {
  std::string name;
  std::string help;  // one clause
  std::vector<std::string> aliases = {};
  int moments = 1;               // of each weight; 2: with a second one
  bool narrow_second = false;    // the second one may be stored in bf16
  bool by_rows = false;          // it has a moment and the number of the last update for each row
  bool whole_matrices = false;   // it needs all of a matrix at once; otherwise processes may update parts of it
  std::vector<Role> takes = {};  // matrices of these roles; empty: every parameter
  std::vector<Role> by_default = {};  // the ones among them that optim.name=<name> updates with it
  std::string rest = {};              // the optimizer of all other parameters then
  std::vector<Setting> settings = {};
  std::span<const KernelRow<UpdateKernels>> rows = {};  // of an elementwise optimizer (Elementwise)
  std::unique_ptr<Optimizer> (*make)(const OptimizerSettings& settings) = nullptr;
  std::vector<KernelName> (*kernels)() = nullptr;  // the kernels that it chooses in addition to `rows`

  bool can_take(const Parameter& parameter) const;
};

// The settings of one optimizer: the checked values, and defaults for all others.
class OptimizerSettings {
 public:
  // moment, second: the types of the first and the second moment, f32 or bf16. Error for a name, value or type
  // that the spec does not allow.
  explicit OptimizerSettings(const OptimizerSpec& spec, const OptionValues& given = {}, DType moment = DType::f32,
                             DType second = DType::f32);

  const OptimizerSpec& spec() const { return spec_; }
  DType moment() const { return moment_; }
  DType second() const { return second_; }
  double number(const std::string& name) const { return std::get<double>(values_.at(name)); }
  int64_t whole(const std::string& name) const { return std::get<int64_t>(values_.at(name)); }
  bool flag(const std::string& name) const { return std::get<bool>(values_.at(name)); }
  const std::string& word(const std::string& name) const { return std::get<std::string>(values_.at(name)); }

 private:
  const OptimizerSpec& spec_;
  DType moment_, second_;
  OptionValues values_;
};

std::span<const OptimizerSpec* const> optimizer_specs();
// Add an optimizer at run time, for the rest of the process; a later one replaces an earlier one of the same name.
// It is not among optimizer_specs().
void add_optimizer_spec(const OptimizerSpec& spec);
// Return the spec by a name or an alias, added ones first; Error for any other.
const OptimizerSpec& optimizer_spec(const std::string& name);

}  // namespace mudd
