#include "mudd/params/parameter.h"

#include "mudd/base/name_table.h"

namespace mudd {
namespace {

constexpr RoleInfo kRoles[] = {{"embedding", "table"}, {"matrix", "matrix"}, {"gain", "vector"},
                               {"bias", "vector"},     {"head", "table"},    {"router", "matrix"},
                               {"slots", "matrix"},    {"mix", "matrix"}};

}  // namespace

std::span<const RoleInfo> roles() { return kRoles; }
const char* name_of(Role role) { return kRoles[static_cast<int>(role)].name; }

Role parse_role(const std::string& name) {
  return static_cast<Role>(position_of(kRoles, name, "parameter", "role", &RoleInfo::name));
}

bool may_be_narrow(const Parameter& p) {
  return p.shape.size() >= 2 && p.role != Role::router && p.role != Role::bias && p.role != Role::gain;
}

int64_t Parameter::size() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

}  // namespace mudd
