#include "mudd/params/parameter.h"

#include "mudd/base/check.h"

namespace mudd {
namespace {

constexpr const char* kRoles[] = {"embedding", "matrix", "gain", "bias", "head", "router", "slots", "mix"};

}  // namespace

const char* name_of(Role role) { return kRoles[static_cast<int>(role)]; }

Role parse_role(const std::string& name) {
  for (int i = 0; i < 8; ++i)
    if (name == kRoles[i]) return static_cast<Role>(i);
  fail("parameter", "role: expected embedding, matrix, gain, bias, head, router, slots or mix, got '", name, "'");
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
