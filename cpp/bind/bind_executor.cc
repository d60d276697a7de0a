// Executor: a planned graph, its values, its gradients and its tables, for Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <string_view>

#include "bind/class.h"
#include "bind/numpy.h"
#include "bind/store.h"
#include "mudd/graph/executor.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/train/node_gradients.h"

namespace py = pybind11;
using namespace mudd;

namespace {

std::unique_ptr<Executor> make_executor(Graph& graph, ParamStore& store, std::vector<ValueId> losses,
                                        std::vector<ValueId> keep, int runs_per_step, bool reuse, bool recompute,
                                        int64_t shift, bool poison, bool check_finite, bool gradient_rows,
                                        bool cut_gradients,
                                        std::optional<std::reference_wrapper<NodeGradients>> gradients) {
  check(!graph.values().empty(), "executor", "graph: empty, or taken by an earlier executor");
  ExecutorOptions o;
  o.plan = {.reuse = reuse, .recompute = recompute, .shift = shift};
  o.runs_per_step = runs_per_step;
  o.poison = poison;
  o.check_finite = check_finite;
  o.gradient_rows = gradient_rows;
  if (cut_gradients) o.bucket_bytes = gradients ? gradients->get().bucket_bytes() : NodeGradients::kBucketBytes;
  if (gradients) o.gradient_memory = gradients->get().memory();
  const Busy busy = bind::in_use(store);  // the Executor may request packed copies
  py::gil_scoped_release release;         // ranks that share weights construct their executors together
  return std::make_unique<Executor>(std::move(graph), store, std::move(losses), std::move(keep), o);
}

py::object summed_gradient(const Executor& e, const std::string& name) {
  const Busy busy = bind::in_use(e.store());
  const int i = bind::index_of(e.store(), name);
  const Parameter& p = e.store().parameters().at(i);
  py::object array = bind::empty(p.shape, DType::f32);
  float* out = bind::writable(array, DType::f32, "gradient", "result").f32();
  std::fill_n(out, p.size(), 0.0f);
  std::vector<float> copy;
  const GradientSums& sums = e.gradients();
  check(!e.store().deals(i), "gradient", name, ": this rank has only its own experts");
  check(!sums.cut(), "gradient", name, ": only its owners have the sums");
  for (int use = 0; use < sums.uses(i); ++use) {
    const RowTotal* rows = sums.rows(i, use);
    copy.resize(static_cast<size_t>(rows ? p.size() : 0));
    if (rows) rows->copy(0, p.size(), copy.data());
    const float* plane = rows ? copy.data() : sums.whole(i, use);
    for (int64_t k = 0; k < p.size(); ++k) out[k] = use ? out[k] + plane[k] : plane[k];
  }
  return array;
}

// Rows of the tables, with their types for the stubs.
using BufferRows = py::typing::List<py::typing::Tuple<py::str, py::str, py::int_, py::int_, py::int_, py::int_>>;
using CallRows = py::typing::List<py::typing::Tuple<py::str, py::str, py::float_, py::float_>>;
using ProfileRows = py::typing::List<py::typing::Tuple<py::str, py::str, py::int_, py::float_, py::float_,
                                                       py::float_, py::float_, py::float_, py::int_>>;

BufferRows memory_table(const Executor& e) {
  BufferRows rows;
  for (const std::vector<Buffer>* buffers : {&e.plan().buffers, &e.plan().weights})
    for (const Buffer& b : *buffers)
      rows.append(py::make_tuple(b.what, mudd::name_of(b.kind), b.bytes, b.first, b.last, b.offset));
  return rows;
}

int64_t bytes_of(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const Tensor& t : tensors)
    if (t) bytes += t.rows * t.cols * size_of(t.dtype);
  return bytes;
}

constexpr std::string_view kLosses[] = {"cross_entropy", "regularized_loss", "teacher_loss", "preference_loss"};

// Each forward matmul needs three of the same size if all gradients are computed.
py::typing::Tuple<py::float_, py::float_, py::float_> step_flops(const Executor& e) {
  double computed = 0, all = 0, loss = 0;
  for (size_t i = 0; i < e.plan().schedule.size(); ++i) {
    computed += e.flops(i);
    const std::string_view op = e.graph().nodes()[e.plan().schedule[i].node].node->op();
    if (std::ranges::find(kLosses, op) != std::end(kLosses)) loss += e.flops(i);
  }
  for (const GraphNode& node : e.graph().nodes()) all += 3 * node.node->forward_flops();
  return py::make_tuple(computed, all, loss);
}

const char* name_of(NodePass phase) {
  return phase == NodePass::remake ? "remake" : phase == NodePass::forward ? "forward" : "backward";
}

CallRows taken_calls(Executor& e) {
  const Busy busy = bind::in_use(e.store());
  CallRows rows;
  for (const Executor::TimedCall& call : e.take_calls()) {
    const PlanStep& step = e.plan().schedule[call.position];
    rows.append(py::make_tuple(e.graph().nodes()[step.node].label, name_of(step.phase), call.begin, call.end));
  }
  return rows;
}

ProfileRows profile_table(const Executor& e) {
  ProfileRows rows;
  for (size_t i = 0; i < e.spans().size(); ++i) {
    const PlanStep& step = e.plan().schedule[i];
    const GraphNode& node = e.graph().nodes()[step.node];
    const Run& run = e.bound(i);
    const bool forward = step.phase != NodePass::backward;
    const int64_t bytes = bytes_of(run.in_) + bytes_of(forward ? run.out_ : run.dout_) + bytes_of(run.din_);
    const Executor::Span& span = e.spans()[i];
    rows.append(py::make_tuple(node.label, name_of(step.phase), span.calls, span.seconds, span.least, span.begin,
                               span.end, e.flops(i), bytes));
  }
  return rows;
}

}  // namespace

void bind_executor(py::module_& m) {
  bind::Class<Executor>(m, "Executor", py::dynamic_attr(), "A planned graph with its arena.")
      .def(py::init(&make_executor), py::arg("graph"), py::arg("store"), py::kw_only(), py::arg("losses"),
           py::arg("keep"), py::arg("runs_per_step") = 1, py::arg("reuse") = true, py::arg("recompute") = false,
           py::arg("shift") = 0, py::arg("poison") = false, py::arg("check_finite") = false,
           py::arg("gradient_rows") = true, py::arg("cut_gradients") = false, py::arg("gradients") = py::none(),
           bind::Keeps<3>(), bind::Keeps<14>())
      .def("set",
           [](Executor& e, const std::string& name, const py::object& array) {
             const Busy busy = bind::in_use(e.store());
             const ValueId v = e.input(name);
             check(v != kAbsent, "executor", "input: no input is called '", name, "'");
             const Value& value = e.graph().values()[v];
             py::object hold;
             check(bind::shape_of(array, "executor", name.c_str()) == value.spec.shape, "executor", name,
                   ": expected ", value.spec.text());
             const Tensor from = bind::tensor(array, value.spec.dtype, "executor", name.c_str(), &hold);
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
            const Busy busy = bind::in_use(e.store());
            const ValueId v = e.input(name);
            check(v != kAbsent, "executor", "attach: no input is called '", name, "'");
            const TensorSpec& spec = e.graph().values()[v].spec;
            const Tensor memory = bind::writable(array, spec.dtype, "attach", name.c_str());
            check(bind::shape_of(array) == spec.shape, "attach", name, ": expected ", spec.text());
            e.attach(name, memory.data);
            py::setattr(self, ("attached " + name).c_str(),
                        array);  // alive as long as the executor, or until the next one
          },
          py::arg("name"), py::arg("array"), "Gives an external input its memory: this array, written in place.")
      .def(
          "run",
          [](Executor& e, int run, int64_t cache_length, uint64_t seed, int64_t step, int64_t first_sample) {
            const StepInput input{cache_length, seed, step, first_sample};
            const Busy busy = bind::in_use(e.store());
            py::gil_scoped_release release;
            e.run(input, run);
          },
          py::arg("run") = 0, py::arg("cache_length") = 0, py::kw_only(), py::arg("seed") = 0, py::arg("step") = 0,
          py::arg("first_sample") = 0, "seed, step, first_sample: of the random numbers that ops draw.")
      .def(
          "get",
          [](py::object self, ValueId v) {
            auto& e = self.cast<Executor&>();
            const Busy busy = bind::in_use(e.store());
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
      .def(
          "observe",
          [](Executor& e, const std::optional<std::shared_ptr<NodeObserver>>& observer) {
            const Busy busy = bind::in_use(e.store());
            e.observe(observer.value_or(nullptr));
          },
          py::arg("observer"), "Shows each value of the runs that follow to an observer.")
      .def(
          "show_weights",
          [](Executor& e, NodeObserver& observer) {
            const Busy busy = bind::in_use(e.store());
            e.shown().weights(observer);
          },
          py::arg("observer"), "Shows the weights to an observer.")
      .def("first_non_finite",
           [](const Executor& e) {
             const Busy busy = bind::in_use(e.store());
             return e.first_non_finite();
           })
      .def(
          "profile",
          [](Executor& e, bool on, bool keep_calls) {
            const Busy busy = bind::in_use(e.store());
            e.profile(on, keep_calls);
          },
          py::arg("on"), py::arg("keep_calls") = false, "Times every node of the runs that follow.")
      .def("take_calls", &taken_calls,
           "(label, phase, begin, end) of every call since the last time, with profile(True, keep_calls=True).")
      .def("profile_table", &profile_table,
           "(label, phase, calls, seconds, seconds of the shortest call, last begin, last end, FLOPs a call, "
           "bytes a call) in running order.")
      .def("text", [](const Executor& e) { return e.graph().text(); })
      .def("memory_table", &memory_table, "(what, kind, bytes, first, last, offset) per buffer.")
      .def_property_readonly("arena_bytes", [](const Executor& e) { return e.plan().arena_bytes; })
      .def_property_readonly(
          "likely_bytes", [](const Executor& e) { return e.plan().likely_bytes; },
          "Memory that runs are planned to use in the arena, with twice an even load for experts of other ranks.")
      .def_property_readonly(
          "weight_bytes", [](const Executor& e) { return e.plan().weight_bytes; },
          "Bytes of the weights that a run gathers, in memory that a host shares.")
      .def_property_readonly("gradient_bytes", [](const Executor& e) { return e.gradients().bytes(); })
      .def(
          "release",
          [](Executor& e) {
            const Busy busy = bind::in_use(e.store());
            e.release();
          },
          "Releases the memory of results and gradients until the next run.")
      .def_property_readonly("runs_per_step", &Executor::runs_per_step)
      .def_property_readonly(
          "flops", &step_flops,
          "(FLOPs of the matmuls of one run, the same with every gradient computed, FLOPs of the loss). Before "
          "the first run no target is taken as ignored, afterwards as in the last run.");
}
