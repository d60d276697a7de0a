// The tables of optimizers and roles, from which Python creates its choices and checks.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <utility>

#include "bind/class.h"
#include "bind/own_optimizer.h"
#include "mudd/optim/optimizer_spec.h"

namespace py = pybind11;
using namespace mudd;

namespace {

std::vector<std::string> names_of(const std::vector<Role>& roles) {
  std::vector<std::string> names;
  for (const Role role : roles) names.emplace_back(name_of(role));
  return names;
}

}  // namespace

void bind_optim(py::module_& m) {
  bind::Class<RoleInfo>(m, "Role", "A role of parameters.")
      .def_readonly("name", &RoleInfo::name)
      .def_readonly("kind", &RoleInfo::kind, "matrix, table (a row for each token), rows (of n-grams) or vector.");
  m.def("roles", [] { return std::vector<RoleInfo>(roles().begin(), roles().end()); }, "All roles of parameters.");
  bind::Class<Setting, Option>(m, "OptimizerSetting", "An option of an optimizer, and how the config sets it.")
      .def_readonly("unit", &Setting::unit, "The unit of an integer.")
      .def_readonly("field", &Setting::field, "Its field in the config's section optim.")
      .def_readonly("in_groups", &Setting::in_groups, "True if a group of optim.groups may set it separately.");
  bind::Class<OptimizerSpec>(m, "OptimizerSpec", "The declaration of an optimizer.")
      .def_readonly("name", &OptimizerSpec::name)
      .def_readonly("help", &OptimizerSpec::help)
      .def_readonly("aliases", &OptimizerSpec::aliases)
      .def_readonly("moments", &OptimizerSpec::moments)
      .def_readonly("narrow_second", &OptimizerSpec::narrow_second, "The second moment may be stored in bf16.")
      .def_readonly("by_rows", &OptimizerSpec::by_rows, "It has a moment and the last update of each row.")
      .def_readonly("whole_matrices", &OptimizerSpec::whole_matrices)
      .def_property_readonly(
          "takes", [](const OptimizerSpec& s) { return names_of(s.takes); },
          "The roles of the matrices that it can update; none: every parameter.")
      .def_property_readonly(
          "by_default", [](const OptimizerSpec& s) { return names_of(s.by_default); },
          "The ones among them that optim.name updates with it.")
      .def_readonly("rest", &OptimizerSpec::rest, "The optimizer of all other parameters then.")
      .def_readonly("settings", &OptimizerSpec::settings);
  m.def(
      "optimizer_specs",
      [] {
        std::vector<OptimizerSpec> specs;
        for (const OptimizerSpec* spec : optimizer_specs()) specs.push_back(*spec);
        return specs;
      },
      "All optimizers of the core.");
  m.def(
      "add_own_optimizer",
      [](const std::string& name, py::object update, std::vector<std::string> moments, const py::dict& settings,
         bool whole) {
        bind::add_own_optimizer(name, std::move(update), std::move(moments), settings, whole);
        return optimizer_spec(name);
      },
      py::arg("name"), py::arg("update"), py::arg("moments"), py::arg("settings"), py::arg("whole"),
      "Makes a function in Python known as an optimizer; a later one takes the place of an earlier one.");
}
