// ParamStore, Graph, Executor: the planned engine as Python sees it.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>

#include "bind/attributes.h"
#include "bind/custom_op.h"
#include "bind/numpy.h"
#include "mudd/graph/executor.h"
#include "mudd/ops/convert/convert.h"
#include "mudd/train/init.h"

namespace py = pybind11;
using namespace mudd;

namespace {

int index_of(const ParamStore& store, const std::string& name) {
  const int i = store.find(name);
  if (i < 0) throw py::key_error(name);
  return i;
}

// The weights, and the graphs over them, have one user at a time.
Busy in_use(ParamStore& store) { return Busy(store.busy(), "model"); }

py::object plane_view(py::object store, int plane, const std::string& name, bool writable) {
  auto& s = store.cast<ParamStore&>();
  check(s.allocated() && !s.booked_only(), "parameters", "not allocated yet, or only booked for planning");
  check(plane >= 0 && plane < s.planes(), "parameters", "plane: expected 0 to ", s.planes() - 1, ", got ", plane);
  const int i = index_of(s, name);
  return bind::view(s.plane_data(plane, i), s.at(i).shape, s.plane_dtype(plane), std::move(store), writable);
}

void set_plane(ParamStore& s, int plane, const std::string& name, const py::object& array) {
  const Busy busy = in_use(s);
  const int i = index_of(s, name);
  py::object hold;
  check(plane >= 0 && plane < s.planes(), "set_parameter", "plane: expected 0 to ", s.planes() - 1, ", got ",
        plane);
  check(!s.booked_only(), "set_parameter", name, ": this model is only booked, for planning");
  const DType dtype = s.plane_dtype(plane);
  const Tensor t = bind::tensor(array, dtype, "set_parameter", name.c_str(), &hold);
  check(bind::shape_of(array) == s.at(i).shape, "set_parameter", name, ": wrong shape");
  std::byte* to = s.plane_data(plane, i);
  const int64_t item = size_of(dtype);
  // memmove: a checkpoint may have been read into this very memory.
  for (int64_t r = 0; r < t.rows; ++r)
    std::memmove(to + r * t.cols * item, static_cast<const std::byte*>(t.data) + r * t.stride * item,
                 t.cols * item);
  if (plane == 0) s.repack(i);
}

py::dict describe(const ParamStore& s, const std::string& name) {
  const Parameter& p = s.at(index_of(s, name));
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
  return d;
}

void bind_store(py::module_& m) {
  py::class_<ParamStore>(m, "ParamStore", "All parameters of a model in flat fp32 planes (0 = master).")
      .def(py::init([](const std::string& compute) {
             return std::make_unique<ParamStore>(bind::parse_dtype(compute));
           }),
           py::arg("compute") = "float32")
      .def_property_readonly("compute", [](const ParamStore& s) { return std::string(name_of(s.compute())); })
      .def(
          "declare",
          [](ParamStore& s, const std::string& name, std::vector<int64_t> shape, const std::string& role,
             int64_t fan_in, int64_t fan_out, const std::string& init, double init_scale, bool trainable) {
            const Busy busy = in_use(s);
            Parameter p;
            p.name = name;
            p.shape = std::move(shape);
            p.role = parse_role(role);
            p.fan_in = fan_in;
            p.fan_out = fan_out;
            p.init = init;
            p.init_scale = init_scale;
            p.trainable = trainable;
            return s.declare(p);
          },
          py::arg("name"), py::arg("shape"), py::kw_only(), py::arg("role"), py::arg("fan_in"), py::arg("fan_out"),
          py::arg("init"), py::arg("init_scale") = 0.0, py::arg("trainable") = true)
      .def(
          "scale",
          [](ParamStore& s, const std::string& name, double lr, double eps, double decay, bool independent) {
            const Busy busy = in_use(s);
            Parameter& p = s.at(index_of(s, name));
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
          [](ParamStore& s, bool booked_only) {
            const Busy busy = in_use(s);
            s.allocate(booked_only);
          },
          py::arg("booked_only") = false)
      .def_property_readonly("allocated", &ParamStore::allocated)
      .def(
          "initialize",
          [](ParamStore& s, uint64_t seed) {
            check(!s.booked_only(), "initialize", "this model is only booked, for planning");
            const Busy busy = in_use(s);
            py::gil_scoped_release release;
            initialize(s, seed);
          },
          py::arg("seed"), "Fills every parameter from its declared init (Philox, by global element index).")
      .def("names",
           [](const ParamStore& s) {
             py::list names;
             for (int i = 0; i < s.count(); ++i) names.append(s.at(i).name);
             return names;
           })
      .def("describe", &describe, py::arg("name"))
      .def("view", &plane_view, py::arg("plane"), py::arg("name"), py::arg("writable") = false)
      .def("set", &set_plane, py::arg("plane"), py::arg("name"), py::arg("array"))
      .def("repack",
           [](ParamStore& s) {
             const Busy busy = in_use(s);
             s.repack_all();
           })
      .def_property_readonly("planes", &ParamStore::planes)
      .def_property_readonly("elements", &ParamStore::elements)
      .def_property_readonly("plane_bytes", &ParamStore::plane_bytes)
      .def_property_readonly("state_bytes", &ParamStore::state_bytes)
      .def_property_readonly("packed_bytes", &ParamStore::packed_bytes);
}

void bind_recording(py::module_& m) {
  py::class_<Graph>(m, "Graph", "What a model function records.")
      .def(py::init([](bool training, int64_t samples, int shards, const std::string& compute) {
             return std::make_unique<Graph>(training, Shards::cut(samples, shards), bind::parse_dtype(compute));
           }),
           py::kw_only(), py::arg("training"), py::arg("samples"), py::arg("shards"),
           py::arg("compute") = "float32")
      .def("input",
           [](Graph& g, const std::string& name, std::vector<int64_t> shape, const std::string& dtype,
              bool external) { return g.input(name, {std::move(shape), bind::parse_dtype(dtype)}, external); })
      .def("parameter",
           [](Graph& g, ParamStore& s, const std::string& name) {
             const int i = index_of(s, name);
             return g.parameter(name, {s.at(i).shape, DType::f32}, i, s.at(i).trainable);
           })
      .def("apply",
           [](Graph& g, const std::string& op, const py::dict& options, const std::vector<ValueId>& inputs,
              const std::string& label) { return g.apply(op, bind::attributes(op, options), inputs, label); })
      .def("custom",
           [](Graph& g, py::object forward, py::object backward, const std::vector<ValueId>& inputs,
              const std::string& label) {
             return g.apply(bind::custom_node(std::move(forward), std::move(backward)), inputs, label);
           })
      .def("shape", [](const Graph& g, ValueId v) { return py::tuple(py::cast(g.values().at(v).spec.shape)); })
      .def("dtype", [](const Graph& g, ValueId v) { return std::string(name_of(g.values().at(v).spec.dtype)); })
      .def("text", &Graph::text);
}

std::unique_ptr<Executor> make_executor(Graph& graph, ParamStore& store, std::vector<ValueId> losses,
                                        std::vector<ValueId> keep, int runs_per_step, bool reuse, bool recompute,
                                        int64_t shift, bool poison, bool check_finite, bool gradient_rows) {
  ExecutorOptions o;
  o.plan = {.reuse = reuse, .recompute = recompute, .shift = shift};
  o.runs_per_step = runs_per_step;
  o.poison = poison;
  o.check_finite = check_finite;
  o.gradient_rows = gradient_rows;
  const Busy busy = in_use(store);  // it may ask for packed copies
  return std::make_unique<Executor>(std::move(graph), store, std::move(losses), std::move(keep), o);
}

py::object summed_gradient(const Executor& e, const std::string& name) {
  const Busy busy = in_use(e.store());
  const int i = index_of(e.store(), name);
  const Parameter& p = e.store().at(i);
  py::object array = bind::empty(p.shape, DType::f32);
  float* out = bind::writable(array, DType::f32, "gradient", "result").f32();
  std::fill_n(out, p.size(), 0.0f);
  std::vector<float> copy;
  for (int use = 0; use < e.uses(i); ++use) {
    const RowGradient* rows = e.gradient_rows(i, use);
    copy.resize(static_cast<size_t>(rows ? p.size() : 0));
    if (rows) rows->copy(0, p.size(), copy.data());
    const float* plane = rows ? copy.data() : e.gradient(i, use);
    for (int64_t k = 0; k < p.size(); ++k) out[k] = use ? out[k] + plane[k] : plane[k];
  }
  return array;
}

py::list memory_table(const Executor& e) {
  py::list rows;
  for (const Buffer& b : e.plan().buffers)
    rows.append(py::make_tuple(b.what, std::string(1, b.kind), b.bytes, b.first, b.last, b.offset));
  return rows;
}

int64_t bytes_of(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const Tensor& t : tensors)
    if (t) bytes += t.rows * t.cols * size_of(t.dtype);
  return bytes;
}

py::list profile_table(const Executor& e) {
  py::list rows;
  for (size_t i = 0; i < e.spans().size(); ++i) {
    const PlanStep& step = e.plan().schedule[i];
    const GraphNode& node = e.graph().nodes()[step.node];
    const Run& run = e.bound(i);
    const bool forward = step.phase != Phase::backward, again = step.phase == Phase::remake;
    const int64_t bytes = bytes_of(run.in_) + bytes_of(forward ? run.out_ : run.dout_) + bytes_of(run.din_);
    // A backward pass is two products for each one forward, three where it does the forward's work as well.
    const double times = again ? 0 : forward ? 1 : node.node->computes_in_backward() ? 3 : 2;
    const Executor::Span& span = e.spans()[i];
    rows.append(py::make_tuple(node.label,
                               again     ? "remake"
                               : forward ? "forward"
                                         : "backward",
                               span.calls, span.seconds, span.begin, span.end, times * node.node->forward_flops(),
                               bytes));
  }
  return rows;
}

void bind_executor(py::module_& m) {
  py::class_<Executor>(m, "Executor", py::dynamic_attr(), "A planned graph with its arena.")
      .def(py::init(&make_executor), py::arg("graph"), py::arg("store"), py::kw_only(), py::arg("losses"),
           py::arg("keep"), py::arg("runs_per_step") = 1, py::arg("reuse") = true, py::arg("recompute") = false,
           py::arg("shift") = 0, py::arg("poison") = false, py::arg("check_finite") = false,
           py::arg("gradient_rows") = true, py::keep_alive<1, 3>())
      .def("set",
           [](Executor& e, const std::string& name, const py::object& array) {
             const Busy busy = in_use(e.store());
             const ValueId v = e.input(name);
             check(v != kAbsent, "executor", "input: no input is called '", name, "'");
             const Value& value = e.graph().values()[v];
             py::object hold;
             const Tensor from = bind::tensor(array, value.spec.dtype, "executor", name.c_str(), &hold);
             check(bind::shape_of(array) == value.spec.shape, "executor", name, ": expected ", value.spec.text());
             const Tensor to = e.value(v);
             const int64_t item = size_of(value.spec.dtype);
             for (int64_t r = 0; r < to.rows; ++r)
               std::memcpy(static_cast<std::byte*>(to.data) + r * to.stride * item,
                           static_cast<std::byte*>(from.data) + r * from.stride * item, to.cols * item);
           })
      .def(
          "attach",
          [](const py::object& self, const std::string& name, const py::object& array) {
            auto& e = self.cast<Executor&>();
            const Busy busy = in_use(e.store());
            const ValueId v = e.input(name);
            check(v != kAbsent, "executor", "attach: no input is called '", name, "'");
            const TensorSpec& spec = e.graph().values()[v].spec;
            const Tensor memory = bind::writable(array, spec.dtype, "attach", name.c_str());
            check(bind::shape_of(array) == spec.shape, "attach", name, ": expected ", spec.text());
            e.attach(name, memory.data);
            py::setattr(self, ("attached " + name).c_str(), array);  // lives as long, or until the next one
          },
          py::arg("name"), py::arg("array"), "Gives an external input its memory: this array, written in place.")
      .def(
          "run",
          [](Executor& e, int run, int64_t cache_length) {
            StepInput input;
            input.cache_length = cache_length;
            const Busy busy = in_use(e.store());
            py::gil_scoped_release release;
            e.run(input, run);
          },
          py::arg("run") = 0, py::arg("cache_length") = 0)
      .def(
          "get",
          [](py::object self, ValueId v) {
            auto& e = self.cast<Executor&>();
            const Busy busy = in_use(e.store());
            const Tensor t = e.value(v);
            const std::vector<int64_t>& shape = e.graph().values()[v].spec.shape;
            if (t.dtype != DType::bf16) return bind::view(t.data, shape, t.dtype, std::move(self), false);
            py::object wide = bind::empty(shape, DType::f32);
            widen(t.rows * t.cols, static_cast<const bf16*>(t.data),
                  bind::writable(wide, DType::f32, "executor", "value").f32());
            return wide;
          },
          "A read-only view of a kept value; the next run overwrites it. Of a bf16 value: an fp32 copy.")
      .def("gradient", &summed_gradient, py::arg("name"))
      .def("first_non_finite",
           [](const Executor& e) {
             const Busy busy = in_use(e.store());
             return e.first_non_finite();
           })
      .def(
          "profile",
          [](Executor& e, bool on) {
            const Busy busy = in_use(e.store());
            e.profile(on);
          },
          py::arg("on"), "Times every node of the runs that follow.")
      .def("profile_table", &profile_table,
           "(label, phase, calls, seconds, last begin, last end, FLOPs a call, bytes a call) in running order.")
      .def("text", [](const Executor& e) { return e.graph().text(); })
      .def("memory_table", &memory_table, "(what, kind, bytes, first, last, offset) per buffer.")
      .def_property_readonly("arena_bytes", [](const Executor& e) { return e.plan().arena_bytes; })
      .def_property_readonly("gradient_bytes", &Executor::gradient_bytes)
      .def(
          "release",
          [](Executor& e) {
            const Busy busy = in_use(e.store());
            e.release();
          },
          "Gives the memory of results and gradients back until the next run.")
      .def_property_readonly("runs_per_step", &Executor::runs_per_step);
}

}  // namespace

void bind_graph(py::module_& m) {
  bind_store(m);
  bind_recording(m);
  bind_executor(m);
}
