// Immediate mode: one node on NumPy arrays. The typed, documented interface of each op is in mudd_core/ops.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bind/attributes.h"
#include "bind/class.h"
#include "bind/custom_op.h"
#include "bind/numpy.h"
#include "mudd/base/busy.h"
#include "mudd/base/principal.h"
#include "mudd/graph/immediate.h"

namespace py = pybind11;
using namespace mudd;

namespace {

// An ImmediateCall with its arrays, which the tape keeps for backward.
class OpCall {
 public:
  OpCall(std::unique_ptr<Node> node, const py::list& inputs, std::vector<bool> wants, std::vector<int64_t> cuts,
         int64_t cache_length, DType compute) {
    name_ = node->op();
    specs_.resize(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].is_none()) continue;
      const std::string label = label_of(i);
      const DType dtype = bind::dtype_of(inputs[i], name_.c_str(), label.c_str());
      specs_[i] = {bind::shape_of(inputs[i]), dtype};
      check(!specs_[i].shape.empty(), name_.c_str(), label, ": expected at least one axis, got a scalar");
    }
    wants.resize(inputs.size(), false);
    Shards shards;
    if (!cuts.empty()) shards.sample_begin = std::move(cuts);
    StepInput step;
    step.cache_length = cache_length;
    call_ = std::make_unique<ImmediateCall>(std::move(node), specs_, std::move(wants), shards, step, compute);
    // Copy only after the shapes are checked: a broadcast view may have more elements than fit into memory.
    held_.resize(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i)
      in_.push_back(inputs[i].is_none() ? Tensor{} : input(static_cast<int>(i), inputs[i]));
  }

  py::tuple forward() {
    const Busy busy(busy_, name_.c_str());
    py::list arrays;
    for (const TensorSpec& s : call_->outputs()) {
      arrays.append(bind::empty(s.shape, s.dtype));
      out_.push_back(bind::writable(arrays[arrays.size() - 1], s.dtype, name_.c_str(), "output"));
      outputs_.push_back(py::reinterpret_borrow<py::object>(arrays[arrays.size() - 1]));
    }
    {
      py::gil_scoped_release release;
      call_->forward(in_, out_);
    }
    return py::tuple(arrays);
  }

  // dout: array or None per output; into: array to write or None per input.
  void backward(const py::list& dout, const py::list& into, const std::vector<bool>& accumulate,
                std::vector<bool> round) {
    const Busy busy(busy_, name_.c_str());
    round.resize(into.size(), false);
    std::vector<Tensor> d, di;
    std::vector<py::object> hold(dout.size());
    check(dout.size() == out_.size() && into.size() == in_.size() && accumulate.size() == in_.size(),
          name_.c_str(), "backward: expected ", out_.size(), " output gradients and ", in_.size(), " places");
    for (size_t i = 0; i < dout.size(); ++i) {
      if (!dout[i].is_none())
        check(bind::shape_of(dout[i]) == call_->outputs()[i].shape, name_.c_str(), "gradient of output ", i,
              ": expected ", call_->outputs()[i].text());
      d.push_back(dout[i].is_none() ? Tensor{}
                                    : bind::tensor(dout[i], out_[i].dtype, name_.c_str(), "dout", &hold[i]));
    }
    for (size_t i = 0; i < into.size(); ++i) {
      di.push_back(into[i].is_none() ? Tensor{}
                                     : bind::writable(into[i], in_[i].dtype, name_.c_str(), "gradient"));
      check(into[i].is_none() || bind::shape_of(into[i]) == specs_[i].shape, name_.c_str(), "gradient of input ",
            i, ": expected ", specs_[i].text());
    }
    py::gil_scoped_release release;
    call_->backward(in_, out_, d, di, accumulate, round);
  }

  std::vector<bool> rounded() const {
    std::vector<bool> outputs;
    for (size_t i = 0; i < call_->outputs().size(); ++i)
      outputs.push_back(call_->rounds_output(static_cast<int>(i)));
    return outputs;
  }
  bool weight_like(int i) const { return call_->node().weight_like(i); }
  int passes_gradient() const { return call_->node().passes_gradient(); }

 private:
  // Weights and indices are contiguous, as in a parameter store or a batch; activations have a row stride. An
  // input that the node writes into is used without a copy.
  Tensor input(int i, const py::handle& array) {
    const Node& node = call_->node();
    const DType dtype = specs_[static_cast<size_t>(i)].dtype;
    const std::string label = label_of(static_cast<size_t>(i));
    if (node.writes_input(i)) {
      held_[i] = py::reinterpret_borrow<py::object>(array);
      return bind::writable(array, dtype, name_.c_str(), label.c_str());
    }
    const bool dense = node.weight_like(i) || dtype != DType::f32;
    return bind::tensor(array, dtype, name_.c_str(), label.c_str(), &held_[i], dense);
  }

  static std::string label_of(size_t i) { return "input " + std::to_string(i); }

  std::string name_;
  std::unique_ptr<ImmediateCall> call_;
  std::vector<Tensor> in_, out_;
  std::vector<TensorSpec> specs_;
  std::vector<py::object> held_, outputs_;
  BusyFlag busy_;
};

// Tables for mudd_core.ops, the stubs and the tests.
void bind_specs(py::module_& m) {
  bind::Class<OpInput>(m, "OpInput",
                       "An input of an op; index: int32; state: written by forward, not in backward.")
      .def_readonly("name", &OpInput::name)
      .def_property_readonly("optional", &OpInput::optional)
      .def_property_readonly("index", &OpInput::index)
      .def_property_readonly("state", &OpInput::state);
  bind::Class<OpOutput>(m, "OpOutput", "An output of an op; loss: its gradient is 1 unless it is set.")
      .def_readonly("name", &OpOutput::name)
      .def_property_readonly("dtype", [](const OpOutput& o) { return std::string(name_of(o.dtype)); })
      .def_property_readonly("repeated", &OpOutput::repeated)
      .def_property_readonly("has_gradient", &OpOutput::has_gradient)
      .def_property_readonly("loss", &OpOutput::loss);
  bind::Class<Option>(m, "Option", "An option of an op or optimizer; its values have the type of `default`.")
      .def_readonly("name", &Option::name)
      .def_readonly("default", &Option::fallback)
      .def_readonly("help", &Option::help)
      .def_readonly("choices", &Option::choices)
      .def_property_readonly(
          "low", [](const Option& o) { return o.bounds.low; }, "Smallest number, or -inf.")
      .def_property_readonly(
          "high", [](const Option& o) { return o.bounds.high; }, "Largest number, or inf.")
      .def_property_readonly("expected", &Option::expected, "The allowed values as a phrase.");
  bind::Class<OpSpec>(m, "OpSpec", "The declaration of an op.")
      .def_readonly("name", &OpSpec::name)
      .def_readonly("help", &OpSpec::help, "Formula and shapes of inputs; the first line is a summary.")
      .def_readonly("backward_help", &OpSpec::backward_help, "Notes on the gradients.")
      .def_readonly("inputs", &OpSpec::inputs)
      .def_readonly("repeated", &OpSpec::repeated, "Inputs that follow as a group, any number of times.")
      .def_readonly("outputs", &OpSpec::outputs)
      .def_readonly("options", &OpSpec::options);
  m.def(
      "op_specs",
      [] {
        std::vector<const OpSpec*> specs(op_specs().begin(), op_specs().end());
        return specs;
      },
      py::return_value_policy::reference, "The declarations of all ops.");
}

// The start values of PiSSA adapters.
void bind_principal(py::module_& m) {
  m.def(
      "principal_factors",
      [](const py::object& w, int64_t rank, double scale) {
        py::object holder;
        const Tensor t = bind::tensor(w, DType::f32, "principal_factors", "w", &holder, true);
        check(bind::shape_of(w).size() == 2 && rank > 0, "principal_factors",
              "w, rank: expected a matrix and at least one column");
        const py::object a = bind::empty({t.rows, rank}, DType::f32);
        const py::object b = bind::empty({rank, t.cols}, DType::f32);
        const Tensor left = bind::writable(a, DType::f32, "principal_factors", "a");
        const Tensor right = bind::writable(b, DType::f32, "principal_factors", "b");
        {
          const py::gil_scoped_release released;
          principal_factors(t.f32(), t.rows, t.cols, rank, scale, left.f32(), right.f32());
        }
        return py::make_tuple(a, b);
      },
      py::arg("w"), py::arg("rank"), py::arg("scale"),
      "(a, b) with scale a b = the part of w along its `rank` largest singular values, each factor its root.");
}

}  // namespace

void bind_ops(py::module_& m) {
  bind::Class<OpCall>(m, "Call", "One op applied to NumPy arrays: forward(), then backward(). Used by the tape.")
      .def(py::init([](const std::string& op, const py::dict& options, const py::list& inputs,
                       std::vector<bool> wants, std::vector<int64_t> cuts, int64_t cache_length,
                       const std::string& compute) {
             return std::make_unique<OpCall>(make_node(op, bind::attributes(op, options)), inputs,
                                             std::move(wants), std::move(cuts), cache_length,
                                             bind::parse_dtype(compute));
           }),
           py::arg("op"), py::arg("options"), py::arg("inputs"), py::arg("wants"),
           py::arg("cuts") = std::vector<int64_t>{}, py::arg("cache_length") = 0, py::arg("compute") = "float32")
      .def_static(
          "custom",
          [](py::object forward, py::object backward, const py::list& inputs, std::vector<bool> wants,
             std::vector<bool> whole, std::vector<int64_t> cuts) {
            return std::make_unique<OpCall>(
                bind::custom_node(std::move(forward), std::move(backward), std::move(whole)), inputs,
                std::move(wants), std::move(cuts), 0, DType::f32);
          },
          py::arg("forward"), py::arg("backward"), py::arg("inputs"), py::arg("wants"),
          py::arg("whole") = std::vector<bool>{}, py::arg("cuts") = std::vector<int64_t>{})
      .def("forward", &OpCall::forward, "Runs the op; returns its outputs as new arrays.")
      .def("backward", &OpCall::backward, py::arg("dout"), py::arg("into"), py::arg("accumulate"),
           py::arg("round") = std::vector<bool>{},
           "Writes (or adds, where accumulate) the gradient of each input whose place in `into` is an array; "
           "round: to what bf16 can hold.")
      .def("rounded", &OpCall::rounded, "Per output: whether a graph of this compute type stores it in bf16.")
      .def("weight_like", &OpCall::weight_like, py::arg("i"))
      .def("passes_gradient", &OpCall::passes_gradient);
  bind_specs(m);
  bind_principal(m);
}
