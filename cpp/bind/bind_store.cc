// ParamStore: the weights and the optimizer's moments, for Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "bind/class.h"
#include "bind/numpy.h"
#include "bind/store.h"
#include "mudd/dist/node_memory.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/params/init.h"
#include "mudd/train/cut_weights.h"

namespace py = pybind11;
using namespace mudd;

namespace {

// Return the address of parameter i in a plane, and its type: in plane 0 the type of the stored weights.
Cells place_of(const ParamStore& s, int plane, int i) {
  if (plane == 0) return s.planes().weights(i).cells();
  return {s.planes().data(plane, i), s.planes().dtype(plane)};
}

// Return shared memory of the host for a store; the windows live as long as the store.
NodeShare share_of(std::shared_ptr<dist::NodeMemory> memory) {
  dist::Comm& comm = memory->comm();
  return {.rank = comm.node_rank(),
          .size = comm.node_size(),
          .memory = [memory = std::move(memory)](int64_t bytes) { return memory->take(bytes); },
          .barrier = [&comm] { comm.node_barrier(); }};
}

// Return the shape of a parameter in a plane.
std::vector<int64_t> whole_shape(const ParamStore& s, int plane, int i) {
  return shape_in(s.planes().axis(plane), s.parameters().at(i));
}

// Return the shape of the local part of a parameter in a plane: rows of a matrix, elements of a vector.
std::vector<int64_t> held_shape(const ParamStore& s, int plane, int i) {
  std::vector<int64_t> shape = whole_shape(s, plane, i);
  const Part part = s.planes().held(plane, i);
  if (part.size() == std::reduce(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>())) return shape;
  if (shape.size() < 2) return {part.size()};
  return {part.size() / shape.back(), shape.back()};
}

py::object plane_view(py::object store, int plane, const std::string& name, bool writable) {
  auto& s = store.cast<ParamStore&>();
  check(s.allocated() && !s.booked_only(), "parameters", "not allocated yet, or only booked for planning");
  check(plane >= 0 && plane < s.planes().count(), "parameters", "plane: expected 0 to ", s.planes().count() - 1,
        ", got ", plane);
  const int i = bind::index_of(s, name);
  const Cells at = place_of(s, plane, i);
  check(static_cast<bool>(at), "parameters", name, ": expected a buffer (plane) with this parameter, got plane ",
        plane);
  if (writable) bind::before_change(s);
  return bind::view(at.data, held_shape(s, plane, i), at.type, std::move(store), writable);
}

// Return "[2, 8]": the text of a spec without its dtype.
std::string text_of(const std::vector<int64_t>& shape) {
  const std::string text = TensorSpec{shape, DType::f32}.text();
  return text.substr(text.find('['));
}

// Return the part of `given` for a plane's part of parameter i: all of it, or some rows or elements of a whole
// parameter. Error for another shape.
Tensor held_rows(const ParamStore& s, int plane, int i, Tensor given, const std::vector<int64_t>& shape) {
  const std::vector<int64_t> expected = held_shape(s, plane, i), whole = whole_shape(s, plane, i);
  if (shape == expected) return given;
  check(shape == whole, "set_parameter", s.parameters().at(i).name, ": expected shape ", text_of(expected),
        ", got ", text_of(shape));
  const Part part = s.planes().held(plane, i);
  const int64_t row = whole.size() < 2 ? part.size() : whole.back();
  given.data = static_cast<std::byte*>(given.data) +
               (whole.size() < 2 ? part.begin : part.begin / row * given.stride) * size_of(given.dtype);
  given.rows = row > 0 ? part.size() / row : 0;
  given.cols = row;
  return given;
}

void set_plane(ParamStore& s, int plane, const std::string& name, const py::object& array) {
  const Busy busy = bind::in_use(s);
  const int i = bind::index_of(s, name);
  py::object hold;
  check(plane >= 0 && plane < s.planes().count(), "set_parameter", "plane: expected 0 to ", s.planes().count() - 1,
        ", got ", plane);
  check(!s.booked_only(), "set_parameter", name, ": this model is only booked, for planning");
  const Cells at = place_of(s, plane, i);
  check(static_cast<bool>(at), "set_parameter", name,
        ": expected a buffer (plane) with this parameter, got plane ", plane);
  const Tensor t = held_rows(s, plane, i, bind::tensor(array, at.type, "set_parameter", name.c_str(), &hold),
                             bind::shape_of(array, "set_parameter", name.c_str()));
  bind::before_change(s);
  std::byte* to = static_cast<std::byte*>(at.data);
  const int64_t item = size_of(at.type);
  // memmove: a checkpoint may have been read into this memory.
  for (int64_t r = 0; r < t.rows; ++r)
    std::memmove(to + r * t.cols * item, static_cast<const std::byte*>(t.data) + r * t.stride * item,
                 t.cols * item);
  if (plane == 0 && s.share().size == 1) s.packs().repack(i);  // ranks repack together, after all have written
}

// Write fp32 values into a weight of any type; return the count of rounded values.
int64_t set_values(ParamStore& s, const std::string& name, const py::object& array) {
  const int i = bind::index_of(s, name);
  if (s.parameters().at(i).stored == DType::f32) {
    set_plane(s, 0, name, array);
    return 0;
  }
  const Busy busy = bind::in_use(s);
  py::object hold;
  check(!s.booked_only(), "set_parameter", name, ": this model is only booked, for planning");
  const Tensor t = held_rows(s, 0, i, bind::tensor(array, DType::f32, "set_parameter", name.c_str(), &hold),
                             bind::shape_of(array, "set_parameter", name.c_str()));
  bind::before_change(s);
  std::vector<float> back(static_cast<size_t>(t.cols));
  int64_t rounded = 0;
  for (int64_t r = 0; r < t.rows; ++r) {
    const Cells to = s.planes().weights(i).cells() + r * t.cols;
    const float* row = t.f32() + r * t.stride;
    copy_rounded(t.cols, row, to);
    copy_wide(t.cols, to, back.data());
    for (int64_t c = 0; c < t.cols; ++c)
      rounded += !(back[static_cast<size_t>(c)] == row[c]) && !std::isnan(row[c]);
  }
  if (s.share().size == 1) s.packs().repack(i);
  return rounded;
}

// Return the local fp32 values of a weight, in separate memory.
py::object values(const ParamStore& s, const std::string& name) {
  const Tensor w = s.planes().weights(bind::index_of(s, name));
  check(s.allocated() && !s.booked_only(), "parameters", "not allocated yet, or only booked for planning");
  py::object all = bind::empty(held_shape(s, 0, bind::index_of(s, name)), DType::f32);
  copy_wide(w.rows * w.cols, w.cells(), bind::writable(all, DType::f32, "parameters", "values").f32());
  return all;
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

py::dict describe(const ParamStore& s, const std::string& name) {
  const Parameter& p = s.parameters().at(bind::index_of(s, name));
  py::dict d;
  d["shape"] = py::tuple(py::cast(p.shape));
  d["role"] = name_of(p.role);
  d["fan_in"] = p.fan_in;
  d["fan_out"] = p.fan_out;
  d["init"] = p.init;
  d["init_scale"] = p.init_scale;
  d["lr_scale"] = p.lr_scale;
  d["eps_scale"] = p.eps_scale;
  d["decay_scale"] = p.decay_scale;
  d["decay_independent"] = p.decay_independent;
  d["trainable"] = p.trainable;
  d["stored"] = name_of(p.stored);
  d["may_be_narrow"] = may_be_narrow(p);
  return d;
}

}  // namespace

void bind_store(py::module_& m) {
  bind::Class<ParamStore>(
      m, "ParamStore",
      "Parameters of a model and their optimizer state, each in a flat buffer (plane); plane 0 has the weights.")
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
          "lend",
          [](ParamStore& s, const std::string& name, const py::object& array) {
            const Busy busy = bind::in_use(s);
            const int i = bind::index_of(s, name);
            const Parameter& p = s.parameters().at(i);
            check(bind::shape_of(array, "lend", name.c_str()) == p.shape, "lend", name, ": expected shape ",
                  text_of(p.shape), ", got ", text_of(bind::shape_of(array, "lend", name.c_str())));
            s.planes().lend(i,
                            static_cast<std::byte*>(bind::writable(array, p.stored, "lend", name.c_str()).data));
          },
          py::arg("name"), py::arg("array"),
          "Before allocate: use the array, which must outlive the store, for this parameter, stored in 16 bits.")
      .def(
          "pack_at_use",
          [](ParamStore& s) {
            const Busy busy = bind::in_use(s);
            s.pack_at_use();
          },
          "Let graphs recorded from now on pack 16-bit weights at use, and keep no copy.")
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
          "share_packs", [](ParamStore& s, bool on) { s.packs().share(on); }, py::arg("on"),
          "Place packed copies requested from now on in shared memory of the host; its ranks must make the same "
          "requests.")
      .def(
          "set_reader",
          [](ParamStore& s, std::shared_ptr<io::LiveBytes> reader) { s.set_reader(std::move(reader)); },
          py::arg("reader"), "Release this reader of the planes before the next write to weights or moments.")
      .def_property_readonly("allocated", &ParamStore::allocated)
      .def(
          "initialize",
          [](ParamStore& s, uint64_t seed) {
            check(s.allocated(), "initialize", "parameters: not allocated yet");
            check(!s.booked_only(), "initialize", "this model is only booked, for planning");
            const Busy busy = bind::in_use(s);
            py::gil_scoped_release release;
            s.before_change();
            initialize(s, seed);
          },
          py::arg("seed"), "Fill every parameter from its declared init (Philox, by global element index).")
      .def("names",
           [](const ParamStore& s) {
             std::vector<std::string> names;
             for (int i = 0; i < s.parameters().count(); ++i) names.push_back(s.parameters().at(i).name);
             return names;
           })
      .def("describe", &describe, py::arg("name"))
      .def("view", &plane_view, py::arg("plane"), py::arg("name"), py::arg("writable") = false)
      .def("set", &set_plane, py::arg("plane"), py::arg("name"), py::arg("array"))
      .def("set_values", &set_values, py::arg("name"), py::arg("array"),
           "Write fp32 values into a weight stored in any type; return the count of rounded values.")
      .def("values", &values, py::arg("name"), "Return the weights in fp32, a copy.")
      .def("repack",
           [](ParamStore& s) {
             const Busy busy = bind::in_use(s);
             py::gil_scoped_release release;
             s.packs().repack_all();
           })
      .def_property_readonly(
          "pack_requests", [](const ParamStore& s) { return s.packs().requests(); },
          "Packed copies requested so far.")
      .def(
          "drop_packs",
          [](ParamStore& s, size_t requests) {
            const Busy busy = bind::in_use(s);
            s.packs().drop_after(requests);
          },
          py::arg("requests"),
          "Free this process's copies after the first `requests`; no executor created since then may run again.")
      .def(
          "train_only",
          [](ParamStore& s, const std::vector<std::string>& names) {
            const Busy busy = bind::in_use(s);
            std::vector<int> chosen;
            for (const std::string& name : names) chosen.push_back(bind::index_of(s, name));
            s.parameters().train_only(chosen);
          },
          py::arg("names"),
          "Train these parameters in graphs and steps created from now on; all others are frozen.")
      .def(
          "holds",
          [](const ParamStore& s, int plane, const std::string& name) {
            return plane >= 0 && plane < s.planes().count() &&
                   s.planes().held(plane, bind::index_of(s, name)).size() > 0;
          },
          py::arg("plane"), py::arg("name"), "Return True if the plane has memory for some of this parameter.")
      .def(
          "held",
          [](const ParamStore& s, int plane, const std::string& name) {
            const Part part = s.planes().held(plane, bind::index_of(s, name));
            return py::make_tuple(part.begin, part.end);
          },
          py::arg("plane"), py::arg("name"), "Return (begin, end): the elements that a plane has of a parameter.")
      .def(
          "shape",
          [](const ParamStore& s, int plane, const std::string& name) {
            return py::tuple(py::cast(whole_shape(s, plane, bind::index_of(s, name))));
          },
          py::arg("plane"), py::arg("name"), "Return the shape of a whole parameter in a plane.")
      .def(
          "shared",
          [](const ParamStore& s, const std::string& name) {
            return s.share().size > 1 && s.parameters().of_node(bind::index_of(s, name));
          },
          py::arg("name"), "Return True if the ranks of a host have one copy of a weight.")
      .def_property_readonly("planes", [](const ParamStore& s) { return s.planes().count(); })
      .def_property_readonly("elements", [](const ParamStore& s) { return s.parameters().elements(); })
      .def_property_readonly("trained_elements",
                             [](const ParamStore& s) { return s.parameters().trained_elements(); })
      .def_property_readonly("plane_bytes", [](const ParamStore& s) { return s.planes().weight_bytes(); })
      .def_property_readonly(
          "mapped_bytes",
          [](const ParamStore& s) {
            int64_t bytes = 0;
            for (int i = 0; i < s.parameters().count(); ++i)
              if (s.planes().is_lent(i) && !s.packs().at(i, Pack::plain) && !s.packs().at(i, Pack::transposed))
                bytes += s.parameters().at(i).size() * size_of(s.parameters().at(i).stored);
            return bytes;
          },
          "Bytes of the lent weights that are read in place, not from packed copies.")
      .def_property_readonly("state_bytes", [](const ParamStore& s) { return s.planes().state_bytes(); })
      .def_property_readonly("packed_bytes", [](const ParamStore& s) { return s.packs().bytes(); })
      .def(
          "expert_bytes",
          [](const ParamStore& s, const std::vector<int>& moments) {
            int64_t weights = 0, packed = 0, state = 0;
            for (int i = 0; i < s.parameters().count(); ++i) {
              if (!s.deals(i)) continue;
              weights += s.parameters().held(i).size() * size_of(s.parameters().at(i).stored);
              for (Pack how : {Pack::plain, Pack::transposed})
                if (s.packs().at(i, how)) packed += s.packs().matrices(i) * s.packs().stride(i, how);
              for (int p : moments) state += s.planes().held(p, i).size() * size_of(s.planes().dtype(p));
            }
            return std::map<std::string, int64_t>{{"weights", weights}, {"packed", packed}, {"moments", state}};
          },
          py::arg("moments"),
          "Return the bytes of sharded experts: weights, packed copies and these planes of moments; part of the "
          "sums over all parameters.");
  bind::Class<CutWeights>(m, "CutWeights",
                          "Gathers weights of which each rank has a slice for the graphs that read them.")
      .def(py::init([](ParamStore& store, dist::Comm& comm) {
             py::gil_scoped_release release;  // all ranks construct their stores together
             return std::make_unique<CutWeights>(store, comm);
           }),
           py::arg("store"), py::arg("comm"), bind::Keeps<2>(), bind::Keeps<3>());
}
