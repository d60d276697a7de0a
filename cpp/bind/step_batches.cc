#include "bind/step_batches.h"

#include <cstring>
#include <string>
#include <vector>

#include "bind/numpy.h"
#include "bind/store.h"

namespace py = pybind11;

namespace mudd::bind {
namespace {

StepLimits step_limits(const Limits& limits) {
  return limits ? StepLimits{limits->first, limits->second} : StepLimits{};
}

// Return the memory of an input of ids, [samples, T].
Tensor ids(Executor& e, const char* name) {
  const ValueId v = e.input(name);
  check(v != kAbsent, "train_step", "graph: no input is called '", name, "'");
  return e.value(v);
}

// Return the memory of an input other than inputs and targets, null if neither graph nor source has it; Error
// if only one has it.
int32_t* rows_of(Executor& e, const char* name, bool given, const Tensor& inputs) {
  const bool wanted = e.input(name) != kAbsent;
  check(given == wanted, "train_step", name, ": the batcher ", given ? "gives it" : "does not give it",
        ", the graph ", wanted ? "takes it" : "does not take it");
  if (!wanted) return nullptr;
  const Tensor t = ids(e, name);
  check(t.rows == inputs.rows && t.cols == inputs.cols, "train_step", name, ": expected [", inputs.rows, ", ",
        inputs.cols, "], the graph has [", t.rows, ", ", t.cols, "]");
  return t.i32();
}

struct Column {
  Tensor from;
  ValueId to;
  int64_t rows;  // of a sample
  py::object hold;
};

// Return one array for every input of the graph, [batch_size, T] or [batch_size, T, K] each.
std::vector<Column> columns_of(Executor& e, const py::dict& arrays, int64_t batch_size) {
  std::vector<Column> columns;
  for (const auto& [key, array] : arrays) {
    const auto name = py::cast<std::string>(key);
    Column c;
    c.to = e.input(name);
    check(c.to != kAbsent, "train_step", "batch: the graph has no input '", name, "'");
    const TensorSpec& wanted = e.graph().values()[c.to].spec;
    const std::vector<int64_t> shape = shape_of(array, "train_step", name.c_str());
    check(shape.size() == wanted.shape.size(), "train_step", name, ": expected ",
          wanted.shape.size() == 2 ? "[B, T]" : "[B, T, K]", ", got ", shape.size(), " axes");
    check(shape[0] == batch_size, "train_step", name, ": expected ", batch_size, " samples, got ", shape[0],
          " in [", shape[0], ", ", shape[1], "]; a batch is [train.batch_size, train.seq_len]");
    check(shape[1] == wanted.shape[1], "train_step", name, ": expected ", wanted.shape[1], " positions, got ",
          shape[1], " in [", shape[0], ", ", shape[1], "]; a batch is [train.batch_size, train.seq_len]");
    check(shape.back() == wanted.shape.back(), "train_step", name, ": expected ", wanted.shape.back(),
          " values at a position, got ", shape.back());
    c.rows = shape.size() == 2 ? 1 : shape[1];
    c.from = tensor(py::reinterpret_borrow<py::object>(array), wanted.dtype, "train_step", name.c_str(), &c.hold);
    columns.push_back(std::move(c));
  }
  check(columns.size() >= 2, "train_step", "batch: expected inputs and targets, got ", columns.size(), " arrays");
  return columns;
}

}  // namespace

void fill_from(PySource& batcher, Executor& e, int64_t first) {
  BatchSource& source = *batcher.source;
  const Tensor inputs = ids(e, "inputs"), targets = ids(e, "targets");
  for (const Tensor& t : {inputs, targets})
    check(t.rows == inputs.rows && t.cols == source.seq_len(), "train_step", "batcher: expected [", inputs.rows,
          ", ", source.seq_len(), "] as the batcher gives, the graph has [", t.rows, ", ", t.cols, "]");
  const BatchParts parts = source.parts();
  const BatchRows rows{inputs.i32(), targets.i32(), rows_of(e, "positions", parts.positions, inputs),
                       rows_of(e, "segments", parts.segments, inputs),
                       rows_of(e, "key_mask", parts.key_mask, inputs)};
  const Busy busy(batcher.busy, "batcher");
  source.fill(first, inputs.rows, rows);
}

StepReport run_batcher(TrainStep& s, PySource& batcher, int64_t step, int64_t updates, double lr,
                       const Limits& limits, uint32_t flags, double average) {
  const Busy busy(s.executor().store().busy(), "train_step");
  py::gil_scoped_release release;
  StepInput input;
  input.step = step;
  return s.run(
      input, updates, lr, [&](const RunSamples& samples, Executor& e) { fill_from(batcher, e, samples.first); },
      step_limits(limits), flags, average);
}

StepReport run_arrays(TrainStep& s, const py::dict& arrays, int64_t step, int64_t updates, double lr,
                      int64_t batch_size, const Limits& limits, uint32_t flags, double average) {
  const Busy busy(s.executor().store().busy(), "train_step");
  const std::vector<Column> columns = columns_of(s.executor(), arrays, batch_size);
  py::gil_scoped_release release;
  StepInput input;
  input.step = step;
  return s.run(
      input, updates, lr,
      [&](const RunSamples& samples, Executor& e) {
        for (const Column& c : columns) {
          const Tensor to = e.value(c.to);
          const int64_t item = size_of(to.dtype), first = samples.in_batch * c.rows;
          for (int64_t r = 0; r < to.rows; ++r)
            std::memcpy(static_cast<std::byte*>(to.data) + r * to.stride * item,
                        static_cast<const std::byte*>(c.from.data) + (first + r) * c.from.stride * item,
                        to.cols * item);
        }
      },
      step_limits(limits), flags, average);
}

}  // namespace mudd::bind
