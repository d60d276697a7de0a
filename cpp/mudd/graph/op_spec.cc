#include "mudd/graph/op_spec.h"

#include <algorithm>

#include "mudd/base/check.h"
#include "mudd/graph/node.h"

namespace mudd {

#define MUDD_OP(name) const OpSpec& name##_op();
#include "mudd_ops.inc"
#undef MUDD_OP

const OptionValue& Attributes::at(const char* name) const {
  const Option* declared = spec ? option::find(spec->options, name) : nullptr;
  if (!declared) throw StateError("[op] option '" + std::string(name) + "' is not declared by the op");
  const auto given = values.find(name);
  return given == values.end() ? declared->fallback : given->second;
}

int64_t Attributes::integer(const char* name) const { return std::get<int64_t>(at(name)); }
double Attributes::number(const char* name) const { return std::get<double>(at(name)); }
bool Attributes::flag(const char* name) const { return std::get<bool>(at(name)); }
const std::string& Attributes::word(const char* name) const { return std::get<std::string>(at(name)); }

size_t Attributes::position(const char* name) const {
  const std::string& chosen = word(name);
  const auto& choices = option::find(spec->options, name)->choices;
  return static_cast<size_t>(std::ranges::find(choices, chosen) - choices.begin());
}

std::span<const OpSpec* const> op_specs() {
  static const OpSpec* const specs[] = {
#define MUDD_OP(name) &name##_op(),
#include "mudd_ops.inc"
#undef MUDD_OP
  };
  return specs;
}

std::unique_ptr<Node> make_node(const std::string& op, const Attributes& attributes) {
  for (const OpSpec* spec : op_specs())
    if (op == spec->name) return spec->make({option::checked(spec->name, spec->options, attributes.values), spec});
  fail("graph", "op: no op is called '", op, "'");
}

}  // namespace mudd
