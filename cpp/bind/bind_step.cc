// TrainStep: one optimizer update as one call with the GIL released.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "bind/class.h"
#include "bind/numpy.h"
#include "bind/step_batches.h"
#include "bind/store.h"
#include "mudd/train/cut_step.h"
#include "mudd/train/shared_step.h"
#include "mudd/train/step.h"

namespace py = pybind11;
using namespace mudd;

namespace {

using Gradients = std::optional<std::reference_wrapper<NodeGradients>>;
}  // namespace

void bind_step(py::module_& m) {
  bind::Class<StepReport>(m, "StepReport", "The result of one update.")
      .def_readonly("loss_sum", &StepReport::loss_sum)
      .def_readonly("weight_sum", &StepReport::weight_sum)
      .def_readonly("aux_loss", &StepReport::aux_loss)
      .def_readonly("loss", &StepReport::loss)
      .def_readonly("objective", &StepReport::objective, "The loss that has the gradients, like `loss` otherwise.")
      .def_readonly("grad_norm", &StepReport::grad_norm)
      .def_readonly("finite", &StepReport::finite)
      .def_readonly("spike", &StepReport::spike)
      .def_readonly("spoilt", &StepReport::spoilt)
      .def_readonly("stopped", &StepReport::stopped)
      .def_readonly("flags", &StepReport::flags, "The flags of all ranks together.");
  bind::Class<UpdateGroup>(m, "UpdateGroup", "An optimizer and the names that it updates; none: all others.")
      .def(py::init([](std::string optimizer, OptionValues settings, const std::string& moment,
                       const std::string& second, double weight_decay, std::vector<std::string> parameters) {
             const OptimizerSettings checked(optimizer_spec(optimizer), settings, bind::parse_dtype(moment),
                                             bind::parse_dtype(second));
             return std::make_unique<UpdateGroup>(UpdateGroup{.optimizer = std::move(optimizer),
                                                              .settings = std::move(settings),
                                                              .moment = checked.moment(),
                                                              .second = checked.second(),
                                                              .weight_decay = weight_decay,
                                                              .parameters = std::move(parameters)});
           }),
           py::kw_only(), py::arg("optimizer"), py::arg("settings") = OptionValues{},
           py::arg("moment") = "float32", py::arg("second") = "float32", py::arg("weight_decay"),
           py::arg("parameters") = std::vector<std::string>{},
           "settings: by the names in optimizer_specs(); missing ones have defaults.");
  bind::Class<TrainStep>(m, "TrainStep", "All micro-batches, clip, update and repacking in one call.")
      .def(py::init([](Executor& e, ValueId loss, ValueId count, std::vector<UpdateGroup> groups, double eps,
                       double clip, const std::string& normalize, double peak_lr, std::vector<int> moment_planes,
                       uint64_t seed, ValueId aux, ValueId objective, std::vector<ValueId> metrics,
                       Gradients gradients, bool batch_sums, int64_t first_sample, int64_t batch_size,
                       int64_t run_stride, bool average, int average_plane, ValueId samples,
                       const std::string& wire) {
             const TrainStepOptions o{.update = {.groups = std::move(groups),
                                                 .eps = eps,
                                                 .peak_lr = peak_lr,
                                                 .moment_planes = std::move(moment_planes)},
                                      .clip = clip,
                                      .normalize = parse_normalize(normalize),
                                      .seed = seed,
                                      .part = {.begin = first_sample, .batch = batch_size, .step = run_stride},
                                      .average = average,
                                      .average_plane = average_plane};
             const SummedValues values{.loss = loss,
                                       .count = count,
                                       .objective = objective,
                                       .aux = aux,
                                       .metrics = std::move(metrics),
                                       .samples = samples};
             const bool narrow = bind::parse_dtype(wire) == DType::bf16;
             const Busy busy(e.store().busy(), "train_step");
             py::gil_scoped_release release;  // all ranks construct their steps together
             std::shared_ptr<GradientSync> sync;
             if (gradients && e.gradients().cut())
               sync = std::make_shared<CutStep>(e, e.gradients(), gradients->get());
             else if (gradients)
               sync =
                   std::make_shared<SharedStep>(e, gradients->get(), batch_sums, whole_matrices(o.update), narrow);
             return std::make_unique<TrainStep>(e, values, o, std::move(sync));
           }),
           py::arg("executor"), py::arg("loss"), py::arg("count"), py::kw_only(), py::arg("groups"),
           py::arg("eps"), py::arg("clip"), py::arg("normalize"), py::arg("peak_lr") = 0.0,
           py::arg("moment_planes") = std::vector<int>{}, py::arg("seed") = 0, py::arg("aux") = kAbsent,
           py::arg("objective") = kAbsent, py::arg("metrics") = std::vector<ValueId>{},
           py::arg("gradients") = py::none(), py::arg("batch_sums") = false, py::arg("first_sample") = 0,
           py::arg("batch_size") = 0, py::arg("run_stride") = 0, py::arg("average") = false,
           py::arg("average_plane") = -1, py::arg("samples") = kAbsent, py::arg("wire") = "float32",
           bind::Keeps<2>(), bind::Keeps<15>(),
           "gradients: of the executor, if ranks share the batch; this rank processes the samples of batch_size "
           "from first_sample, in each graph run run_stride samples further (0: the samples of a run). "
           "batch_sums: the graph adds over the batch. objective: the loss with the gradients, if it is not "
           "`loss`. average: keep a mean of the weights; average_plane: the plane of another step, -1: a new one. "
           "samples: a value float32 [B, W] whose rows `samples` returns. wire: bfloat16 for gradients between "
           "hosts "
           "as bf16, of ranks that do not shard them.")
      .def(
          "part",
          [](TrainStep& s, const std::string& name) {
            const Part part = s.part(bind::index_of(s.executor().store(), name));
            return py::make_tuple(part.begin, part.end);
          },
          py::arg("name"), "(begin, end): the elements of a parameter that are updated here, row by row.")
      .def("run", &bind::run_batcher, py::arg("batcher"), py::kw_only(), py::arg("step"), py::arg("updates"),
           py::arg("lr"), py::arg("limits") = py::none(), py::arg("flags") = 0, py::arg("average") = 0.0)
      .def("run_on", &bind::run_arrays, py::arg("arrays"), py::kw_only(), py::arg("step"), py::arg("updates"),
           py::arg("lr"), py::arg("batch_size"), py::arg("limits") = py::none(), py::arg("flags") = 0,
           py::arg("average") = 0.0)
      .def_property_readonly(
          "metrics",
          [](py::object self) {
            const std::vector<double>& sums = self.cast<const TrainStep&>().metrics();
            return bind::view(const_cast<double*>(sums.data()), {static_cast<int64_t>(sums.size())}, DType::f64,
                              std::move(self), false);
          },
          "One value per metric: its sum over the samples of the last step. The next step overwrites the array.")
      .def_property_readonly(
          "samples",
          [](py::object self) {
            const std::vector<float>& rows = self.cast<const TrainStep&>().samples();
            return bind::view(const_cast<float*>(rows.data()), {static_cast<int64_t>(rows.size())}, DType::f32,
                              std::move(self), false);
          },
          "The rows of the value `samples` of the last step on this rank, in the order of its graph runs, "
          "flattened. The next step overwrites the array.")
      .def(
          "observe",
          [](TrainStep& s, const std::optional<std::shared_ptr<NodeObserver>>& observer) {
            const Busy busy(s.executor().store().busy(), "train_step");
            s.observe(observer.value_or(nullptr));
          },
          py::arg("observer"), "Shows each value of the steps that follow to an observer; they run slower.")
      .def("settle", &TrainStep::settle, py::call_guard<py::gil_scoped_release>(),
           "Returns when the weights of the last update are here, from all nodes; all ranks call it together.")
      .def_property_readonly(
          "moment_planes", [](const TrainStep& s) { return s.moments(); },
          "Planes in the store of the first and second moments, and of the row and column moments of a factored "
          "one.")
      .def(
          "add_to_average",
          [](TrainStep& s, double weight) {
            const Busy busy(s.executor().store().busy(), "train_step");
            py::gil_scoped_release release;
            s.average().add(weight);
          },
          py::arg("weight"), "average += weight (w - average); 1 copies the weights.")
      .def(
          "swap_average",
          [](TrainStep& s) {
            const Busy busy(s.executor().store().busy(), "train_step");
            py::gil_scoped_release release;
            s.average().swap();
          },
          "Exchanges the average and the weights; all ranks call it together, while none reads the weights.")
      .def_property_readonly(
          "average_plane", [](TrainStep& s) { return s.average().plane(); }, "Its plane in the store.")
      .def_property_readonly("scratch_bytes", &TrainStep::scratch_bytes, "Of the optimizer.")
      .def_property_readonly(
          "seconds",
          [](const TrainStep& s) {
            const StepSeconds& t = s.seconds();
            return std::map<std::string, double>{{"data", t.data},         {"forward", t.forward},
                                                 {"backward", t.backward}, {"update", t.update},
                                                 {"messages", t.messages}, {"hidden", t.hidden}};
          },
          "The seconds of the last step by stage. messages: only exchanging with other ranks, or waiting for "
          "them. "
          "hidden: with messages in transit while this rank computed; all others add up to the step.");
  m.def(
      "fill_inputs",
      [](bind::PySource& batcher, Executor& e, int64_t first) {
        const Busy busy(e.store().busy(), "executor");
        bind::fill_from(batcher, e, first);
      },
      py::arg("batcher"), py::arg("executor"), py::arg("first_sample"),
      "Fills the inputs of a graph run from a batcher.");
  m.def(
      "tree_sum",
      [](const py::object& values) {
        py::object hold;
        const Tensor t = bind::tensor(values, DType::f64, "tree_sum", "values", &hold);
        return shard_sum(static_cast<double*>(t.data), static_cast<int>(t.rows * t.cols));
      },
      py::arg("values"), "Sum of float64 [S] by the balanced binary tree over shards.");
}
