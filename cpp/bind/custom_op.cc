#include "bind/custom_op.h"

#include <cstring>

#include "bind/numpy.h"
#include "mudd/base/check.h"

namespace mudd::bind {
namespace {

// The node outlives the interpreter's attention: its Python objects are touched only with the GIL held.
class CustomNode : public Node {
 public:
  CustomNode(py::object forward, py::object backward)
      : forward_(std::move(forward)), backward_(std::move(backward)) {}
  ~CustomNode() override {
    py::gil_scoped_acquire gil;
    forward_ = py::object();
    backward_ = py::object();
  }

  const char* op() const override { return "custom"; }
  bool keeps_f32(int) const override { return true; }
  bool weight_like(int) const override { return true; }  // any input may be a parameter

  void infer(Inference& io) override {
    py::gil_scoped_acquire gil;
    py::tuple zeros(io.n_inputs());
    for (int i = 0; i < io.n_inputs(); ++i) {
      check(io.has_input(i), "custom", "input ", i, ": expected a value, got None");
      inputs_.push_back(io.input(i));
      py::object a = empty(io.input(i).shape, io.input(i).dtype);
      std::memset(writable(a, io.input(i).dtype, "custom", "zeros").data, 0, io.input(i).bytes());
      zeros[i] = a;
    }
    for (const py::handle& out : results(forward_(*zeros))) {
      const DType dtype = dtype_of(out, "custom", "output");
      outputs_.push_back({shape_of(out), dtype});
      check(outputs_.back().dtype == DType::f32, "custom", "output: expected float32");
      io.output(outputs_.back());
    }
  }

  void forward(const Run& run) override {
    py::gil_scoped_acquire gil;
    const py::tuple given = arguments(run);
    const py::tuple got = results(forward_(*given));
    check(got.size() == outputs_.size(), "custom", "forward: expected ", outputs_.size(), " outputs, got ",
          got.size());
    for (size_t i = 0; i < outputs_.size(); ++i) store(got[i], run.out(static_cast<int>(i)), outputs_[i], false);
  }

  void backward(const Run& run) override {
    py::gil_scoped_acquire gil;
    py::list given;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const Tensor& d = run.dout(static_cast<int>(i));
      if (d) given.append(array(d, outputs_[i]));
      else {
        py::object zero = empty(outputs_[i].shape, DType::f32);
        std::memset(writable(zero, DType::f32, "custom", "zeros").data, 0, outputs_[i].bytes());
        given.append(zero);
      }
    }
    for (const py::handle& a : arguments(run)) given.append(a);
    const py::tuple got = results(backward_(*py::tuple(given)));
    check(got.size() == inputs_.size(), "custom", "backward: expected ", inputs_.size(), " gradients, got ",
          got.size());
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const int j = static_cast<int>(i);
      if (!run.wants(j)) continue;
      check(!got[i].is_none(), "custom", "backward: gradient of input ", i, " is wanted, got None");
      if (run.din(j)) store(got[i], run.din(j), inputs_[i], run.accumulate(j));
      else into_sink(got[i], run.sink(j), inputs_[i]);
    }
  }

 private:
  static py::tuple results(const py::object& got) {
    return py::isinstance<py::tuple>(got) ? py::tuple(got) : py::make_tuple(got);
  }

  static py::object array(const Tensor& t, const TensorSpec& spec) {
    py::object a = empty(spec.shape, spec.dtype);
    const Tensor to = writable(a, spec.dtype, "custom", "argument");
    const int64_t item = size_of(spec.dtype);
    for (int64_t r = 0; r < t.rows; ++r)
      std::memcpy(static_cast<std::byte*>(to.data) + r * to.stride * item,
                  static_cast<std::byte*>(t.data) + r * t.stride * item, t.cols * item);
    return a;
  }

  py::tuple arguments(const Run& run) const {
    py::tuple a(inputs_.size());
    for (size_t i = 0; i < inputs_.size(); ++i) a[i] = array(run.in(static_cast<int>(i)), inputs_[i]);
    return a;
  }

  static Tensor checked(const py::handle& a, const TensorSpec& spec, py::object* hold) {
    const Tensor t = tensor(a, DType::f32, "custom", "result", hold);
    check(shape_of(a) == spec.shape, "custom", "result: expected ", spec.text());
    return t;
  }

  static void store(const py::handle& a, const Tensor& to, const TensorSpec& spec, bool add) {
    py::object hold;
    const Tensor from = checked(a, spec, &hold);
    for (int64_t r = 0; r < to.rows; ++r)
      for (int64_t c = 0; c < to.cols; ++c) {
        float& place = to.f32()[r * to.stride + c];
        place = from.f32()[r * from.stride + c] + (add ? place : 0.0f);
      }
  }

  static void into_sink(const py::handle& a, const GradSink& sink, const TensorSpec& spec) {
    py::object hold;
    const Tensor from = checked(a, spec, &hold);
    for (int64_t r = 0; r < from.rows; ++r)
      for (int64_t c = 0; c < from.cols; ++c) {
        const int64_t i = r * from.cols + c;
        float v = from.f32()[r * from.stride + c];
        for (int k = 0; k < sink.n_add; ++k) v = sink.add[k][i] + v;
        sink.out[i] = v;
      }
  }

  py::object forward_, backward_;
  std::vector<TensorSpec> inputs_, outputs_;
};

}  // namespace

std::unique_ptr<Node> custom_node(py::object forward, py::object backward) {
  check(PyCallable_Check(forward.ptr()) && PyCallable_Check(backward.ptr()), "custom",
        "forward and backward: expected two functions");
  return std::make_unique<CustomNode>(std::move(forward), std::move(backward));
}

}  // namespace mudd::bind
