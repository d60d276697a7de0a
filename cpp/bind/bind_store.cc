// ParamStore for Python: its parameters, and their places on the ranks.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bind/class.h"
#include "bind/numpy.h"
#include "bind/store.h"
#include "bind/store_parts.h"
#include "mudd/dist/node_memory.h"
#include "mudd/train/cut_weights.h"

namespace py = pybind11;
using namespace mudd;

namespace {

// Return shared memory of the host for a store; the windows live as long as the store.
NodeShare share_of(std::shared_ptr<dist::NodeMemory> memory) {
  dist::Comm& comm = memory->comm();
  return {.rank = comm.node_rank(),
          .size = comm.node_size(),
          .memory = [memory = std::move(memory)](int64_t bytes) { return memory->take(bytes); },
          .barrier = [&comm] { comm.node_barrier(); }};
}

// Return a function that is true for the parameters of these names.
WholeMatrices among(const std::vector<std::string>& names) {
  return [set = std::set<std::string>(names.begin(), names.end())](const Parameter& p) {
    return set.contains(p.name);
  };
}

// Return the slices of all parameters but sharded experts.
Slices slices_of(const ParamStore& s, int owners, const std::vector<std::string>& whole) {
  const dist::ExpertGroup* group = s.experts();
  return {s.parameters(), owners, among(whole), [group](const Parameter& p) { return is_dealt(group, p); }};
}

}  // namespace

void bind_store(py::module_& m) {
  bind::Class<ParamStore> store(
      m, "ParamStore",
      "Parameters of a model and their optimizer state, each in a flat buffer (plane); plane 0 has the weights.");
  store
      .def(py::init([](const std::string& compute) {
             return std::make_unique<ParamStore>(bind::parse_dtype(compute));
           }),
           py::arg("compute") = "float32")
      .def_property_readonly("compute", [](const ParamStore& s) { return std::string(name_of(s.compute())); })
      .def(
          "declare",
          [](ParamStore& s, const std::string& name, std::vector<int64_t> shape, const std::string& role,
             int64_t fan_in, int64_t fan_out, const std::string& init, double init_scale, bool trainable,
             const std::string& stored) {
            const Busy busy = bind::in_use(s);
            Parameter p;
            p.name = name;
            p.shape = std::move(shape);
            p.role = parse_role(role);
            p.fan_in = fan_in;
            p.fan_out = fan_out;
            p.init = init;
            p.init_scale = init_scale;
            p.trainable = trainable;
            p.stored = bind::parse_dtype(stored);
            return s.parameters().declare(p);
          },
          py::arg("name"), py::arg("shape"), py::kw_only(), py::arg("role"), py::arg("fan_in"), py::arg("fan_out"),
          py::arg("init"), py::arg("init_scale") = 0.0, py::arg("trainable") = true, py::arg("stored") = "float32")
      .def(
          "scale",
          [](ParamStore& s, const std::string& name, double lr, double eps, double decay, bool independent) {
            const Busy busy = bind::in_use(s);
            Parameter& p = s.parameters().at(bind::index_of(s, name));
            p.lr_scale = lr;
            p.eps_scale = eps;
            p.decay_scale = decay;
            p.decay_independent = independent;
          },
          py::arg("name"), py::kw_only(), py::arg("lr") = 1.0, py::arg("eps") = 1.0, py::arg("decay") = 1.0,
          py::arg("independent") = false,
          "Factors of the optimizer for one parameter; independent: its decay is not multiplied by its rate.")
      .def(
          "allocate",
          [](ParamStore& s, bool booked_only, std::optional<std::shared_ptr<dist::NodeMemory>> memory) {
            const Busy busy = bind::in_use(s);
            py::gil_scoped_release release;
            s.allocate(booked_only, memory ? share_of(std::move(*memory)) : NodeShare{});
          },
          py::arg("booked_only") = false, py::arg("memory") = py::none(),
          "memory: shared by the ranks of a host, with one copy of the weights.")
      .def(
          "hold",
          [](ParamStore& s, const std::string& name, int64_t begin, int64_t end) {
            const Busy busy = bind::in_use(s);
            s.parameters().hold(bind::index_of(s, name), begin, end);
          },
          py::arg("name"), py::arg("begin"), py::arg("end"),
          "Before allocate: keep only elements [begin, end) of this parameter, whole rows, on this rank.")
      .def(
          "deal_experts",
          [](ParamStore& s, std::shared_ptr<dist::ExpertGroup> group) {
            const Busy busy = bind::in_use(s);
            s.set_experts(std::move(group));
          },
          py::arg("group"), "Before allocate: keep only this rank's experts of every stack of matrices.")
      .def_property_readonly(
          "expert_ranks", [](const ParamStore& s) { return s.experts() ? s.experts()->ranks() : 1; },
          "The count of ranks that share the experts.")
      .def_property_readonly(
          "expert_room", [](const ParamStore& s) { return s.experts() ? s.experts()->room() : 0.0; },
          "The token rows that they have memory for in training, as a multiple of an even load; 0: see "
          "ExpertGroup.")
      .def(
          "cut",
          [](ParamStore& s, int owners, int owner, const std::vector<std::string>& whole, bool holds_slices) {
            const Busy busy = bind::in_use(s);
            const ExpertParts experts(s.parameters(), s.experts(), among(whole));
            s.set_cut({slices_of(s, owners, whole), owner, experts}, holds_slices);
          },
          py::arg("owners"), py::arg("owner"), py::arg("whole"), py::arg("holds_slices"),
          "Before allocate: shard gradients and state across `owners` owners; holds_slices: the weights too, with "
          "only the slices of `owner` on this rank. whole: names whose matrices have one owner each.")
      .def(
          "owner_sizes",
          [](const ParamStore& s, int owners, const std::vector<std::string>& whole) {
            const Slices slices = slices_of(s, owners, whole);
            std::vector<int64_t> sizes(static_cast<size_t>(owners));
            for (int owner = 0; owner < owners; ++owner)
              for (int i = 0; i < s.parameters().count(); ++i) sizes[owner] += slices.part(i, owner).size();
            return sizes;
          },
          py::arg("owners"), py::arg("whole"),
          "Return the number of elements of each owner after `cut`, without sharded experts.")
      .def_property_readonly(
          "holds_all", [](const ParamStore& s) { return s.parameters().holds_all(); },
          "True if all weights are on this rank; otherwise graphs gather them, and all ranks run the same graphs "
          "together.")
      .def(
          "set_reader",
          [](ParamStore& s, std::shared_ptr<io::LiveBytes> reader) { s.set_reader(std::move(reader)); },
          py::arg("reader"), "Release this reader of the planes before the next write to weights or moments.")
      .def_property_readonly("allocated", &ParamStore::allocated)
      .def("names",
           [](const ParamStore& s) {
             std::vector<std::string> names;
             for (int i = 0; i < s.parameters().count(); ++i) names.push_back(s.parameters().at(i).name);
             return names;
           })
      .def(
          "train_only",
          [](ParamStore& s, const std::vector<std::string>& names) {
            const Busy busy = bind::in_use(s);
            std::vector<int> chosen;
            for (const std::string& name : names) chosen.push_back(bind::index_of(s, name));
            s.parameters().train_only(chosen);
          },
          py::arg("names"),
          "Train these parameters in graphs and steps created from now on; all others are frozen.");
  bind_values(store);
  bind_packs(store);
  bind::Class<CutWeights>(m, "CutWeights",
                          "Gathers weights of which each rank has a slice for the graphs that read them.")
      .def(py::init([](ParamStore& store, dist::Comm& comm) {
             py::gil_scoped_release release;  // all ranks construct their stores together
             return std::make_unique<CutWeights>(store, comm);
           }),
           py::arg("store"), py::arg("comm"), bind::Keeps<2>(), bind::Keeps<3>());
}
