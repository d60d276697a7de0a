#include "mudd/params/parameter.h"

#include "mudd/base/check.h"
#include "mudd/base/name_table.h"

namespace mudd {
namespace {

constexpr RoleInfo kRoles[] = {{"embedding", "table"}, {"matrix", "matrix"}, {"gain", "vector"},
                               {"bias", "vector"},     {"head", "table"},    {"router", "matrix"},
                               {"slots", "matrix"},    {"mix", "matrix"},
                               {"rows", "rows"}};

}  // namespace

std::span<const RoleInfo> roles() { return kRoles; }
const char* name_of(Role role) { return kRoles[static_cast<int>(role)].name; }

Role parse_role(const std::string& name) {
  return static_cast<Role>(position_of(kRoles, name, "parameter", "role", &RoleInfo::name));
}

bool may_be_narrow(const Parameter& p) {
  return p.shape.size() >= 2 && p.role != Role::router && p.role != Role::bias && p.role != Role::gain;
}

std::vector<int64_t> shape_in(PlaneAxis axis, const Parameter& p) {
  std::vector<int64_t> shape = p.shape;
  if (axis == PlaneAxis::rows) shape.pop_back();
  if (axis == PlaneAxis::columns) shape = p.stack() > 1 ? std::vector{p.stack(), p.cols()} : std::vector{p.cols()};
  return shape;
}

Part part_in(PlaneAxis axis, const Parameter& p, const Part& part) {
  if (axis == PlaneAxis::elements || part.size() == 0) return part;
  if (axis == PlaneAxis::rows) return {part.parameter, part.begin / p.cols(), part.end / p.cols()};
  const int64_t matrix = p.matrix_rows() * p.cols();
  check(part.begin % matrix == 0 && part.end % matrix == 0, "parameter", p.name,
        ": expected whole matrices in a plane of columns, got elements ", part.begin, " to ", part.end);
  return {part.parameter, part.begin / matrix * p.cols(), part.end / matrix * p.cols()};
}

int64_t Parameter::size() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

}  // namespace mudd
