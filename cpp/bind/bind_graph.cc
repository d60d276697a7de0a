// Graph: the record of a model function.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include "bind/attributes.h"
#include "bind/class.h"
#include "bind/custom_op.h"
#include "bind/numpy.h"
#include "bind/store.h"
#include "mudd/graph/graph.h"

namespace py = pybind11;
using namespace mudd;

void bind_graph(py::module_& m) {
  bind::Class<Graph>(m, "Graph", "The record of a model function.")
      .def(py::init([](bool training, int64_t samples, int shards, const std::string& compute, int expert_ranks,
                       double expert_room) {
             return std::make_unique<Graph>(training, Shards::cut(samples, shards), bind::parse_dtype(compute),
                                            expert_ranks, expert_room);
           }),
           py::kw_only(), py::arg("training"), py::arg("samples"), py::arg("shards"),
           py::arg("compute") = "float32", py::arg("expert_ranks") = 1, py::arg("expert_room") = 0.0)
      .def("input",
           [](Graph& g, const std::string& name, std::vector<int64_t> shape, const std::string& dtype,
              bool external) { return g.input(name, {std::move(shape), bind::parse_dtype(dtype)}, external); })
      .def("parameter",
           [](Graph& g, ParamStore& s, const std::string& name) {
             const int i = bind::index_of(s, name);
             const Parameter& p = s.parameters().at(i);
             return g.parameter(name, {p.shape, DType::f32}, i, p.trainable, s.gathers(i), p.stored,
                                s.packs_at_use(i));
           })
      .def("apply",
           [](Graph& g, const std::string& op, const py::dict& options, const std::vector<ValueId>& inputs,
              const std::string& label) { return g.apply(op, bind::attributes(op, options), inputs, label); })
      .def(
          "custom",
          [](Graph& g, py::object forward, py::object backward, const std::vector<ValueId>& inputs,
             const std::string& label, std::vector<bool> whole) {
            return g.apply(bind::custom_node(std::move(forward), std::move(backward), std::move(whole)), inputs,
                           label);
          },
          py::arg("forward"), py::arg("backward"), py::arg("inputs"), py::arg("label"),
          py::arg("whole") = std::vector<bool>{})
      .def("shape",
           [](const Graph& g, ValueId v) -> py::typing::Tuple<py::int_, py::ellipsis> {
             return py::tuple(py::cast(g.values().at(v).spec.shape));
           })
      .def("dtype", [](const Graph& g, ValueId v) { return std::string(name_of(g.values().at(v).spec.dtype)); })
      .def("text", &Graph::text);
}
