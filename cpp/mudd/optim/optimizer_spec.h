// OptimizerSpec: what an optimizer says of itself. The folders of cpp/mudd/optim make the table (CMake); Python
// makes its choices, its config fields and its checks from the same table.
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

// An option of an optimizer, and how the config sets it.
struct Setting : Option {
  std::string field;       // of the config's section optim
  std::string unit = {};   // what a whole number counts
  bool in_groups = false;  // whether a group of optim.groups may have its own
};

// A number in [0, 1), such as a decay of moments; the config's field has the same name unless `field` says
// another.
Setting fraction(const std::string& name, double fallback, std::string help, const std::string& field = "");

struct OptimizerSpec {
  std::string name;
  std::string help;  // one clause
  std::vector<std::string> aliases = {};
  int moments = 1;               // 2: with a second one in fp32
  bool whole_matrices = false;   // it needs all of a matrix at once; otherwise processes may update parts of it
  std::vector<Role> takes = {};  // matrices of these roles; empty: every parameter
  std::vector<Role> by_default = {};  // those of them that optim.name=<name> gives it
  std::string rest = {};              // the optimizer of all others then
  std::vector<Setting> settings = {};
  std::span<const KernelRow<UpdateKernels>> rows = {};  // of one that treats each weight alone (Elementwise)
  std::unique_ptr<Optimizer> (*make)(const OptimizerSettings& settings) = nullptr;
  std::vector<KernelName> (*kernels)() = nullptr;  // the rows that it chooses apart from `rows`

  bool can_take(const Parameter& parameter) const;
};

// The settings of one optimizer: the given values once they are checked, and defaults for all others.
class OptimizerSettings {
 public:
  // moment: the type of the first moment, f32 or bf16. Error for a name or value that the spec does not allow.
  explicit OptimizerSettings(const OptimizerSpec& spec, const OptionValues& given = {}, DType moment = DType::f32);

  const OptimizerSpec& spec() const { return spec_; }
  DType moment() const { return moment_; }
  double number(const std::string& name) const { return std::get<double>(values_.at(name)); }
  int64_t whole(const std::string& name) const { return std::get<int64_t>(values_.at(name)); }
  bool flag(const std::string& name) const { return std::get<bool>(values_.at(name)); }
  const std::string& word(const std::string& name) const { return std::get<std::string>(values_.at(name)); }

 private:
  const OptimizerSpec& spec_;
  DType moment_;
  OptionValues values_;
};

std::span<const OptimizerSpec* const> optimizer_specs();
// Adds an optimizer that a program makes as it runs, which lives for ever; a later one takes the place of an
// earlier one of its name. It is not among optimizer_specs().
void add_optimizer_spec(const OptimizerSpec& spec);
// By a name or an alias, of an added one first; Error for any other.
const OptimizerSpec& optimizer_spec(const std::string& name);

}  // namespace mudd
