// The kernels in use: isa with detail. bind_base.cc has isa without it.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <string>
#include <vector>

#include "mudd/base/isa.h"
#include "mudd/graph/op_spec.h"
#include "mudd/optim/optimizer_spec.h"

namespace py = pybind11;

namespace {

// An argument that is exactly True, or exactly False: each overload has a separate return type.
template <bool kValue>
struct Exactly {};

}  // namespace

template <bool kValue>
struct pybind11::detail::type_caster<Exactly<kValue>> {
  PYBIND11_TYPE_CASTER(Exactly<kValue>, const_name<kValue>("typing.Literal[True]", "typing.Literal[False]"));
  bool load(handle given, bool) { return given.ptr() == (kValue ? Py_True : Py_False); }
};

namespace {

// Map from the name of a kernel to the ISA level that it is compiled for.
using Levels = std::map<std::string, std::string>;

// Return the kernels of each op and optimizer. An op may have none.
std::map<std::string, Levels> kernels_in_use() {
  std::map<std::string, Levels> found;
  const auto add = [&](const std::string& user, const std::vector<mudd::KernelName>& rows) {
    for (const mudd::KernelName& row : rows) found[user].emplace(row.name, row.level);
  };
  for (const mudd::OpSpec* op : mudd::op_specs()) {
    found[op->name];
    if (op->kernels) add(op->name, op->kernels());
  }
  for (const mudd::OptimizerSpec* optimizer : mudd::optimizer_specs()) {
    if (!optimizer->rows.empty()) add(optimizer->name, {mudd::chosen(optimizer->rows)});
    if (optimizer->kernels) add(optimizer->name, optimizer->kernels());
  }
  return found;
}

}  // namespace

void bind_kernels(py::module_& m) {
  m.def(
      "isa", [](Exactly<false>) { return std::string(mudd::name_of(mudd::active_isa())); }, py::kw_only(),
      py::arg("detail"), "As without detail.");
  m.def(
      "isa", [](Exactly<true>) { return kernels_in_use(); }, py::kw_only(), py::arg("detail"),
      "Kernels of each op and optimizer, and the level of the row that runs on this CPU; conversions and sums, "
      "which all ops share, are left out.");
}
