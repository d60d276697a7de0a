#include "bind/custom_op.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "bind/numpy.h"
#include "mudd/base/check.h"
#include "mudd/base/shard_tree.h"

namespace mudd::bind {
namespace {

// The node may outlive the interpreter's references: its Python objects are used only with the GIL held.
class CustomNode : public Node {
 public:
  CustomNode(py::object forward, py::object backward, std::vector<bool> whole)
      : forward_(std::move(forward)), backward_(std::move(backward)), whole_(std::move(whole)) {}
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
      const bool whole = io.input_is_parameter(i) || (i < static_cast<int>(whole_.size()) && whole_[i]);
      cut_.push_back(!whole && has_samples(io.input(i), io.shards()));
      py::object a = empty(io.input(i).shape, io.input(i).dtype);
      std::memset(writable(a, io.input(i).dtype, "custom", "zeros").data, 0, io.input(i).bytes());
      zeros[i] = a;
    }
    for (const py::handle& out : results(forward_(*zeros))) {
      const DType dtype = dtype_of(out, "custom", "output");
      outputs_.push_back({shape_of(out), dtype});
      check(outputs_.back().dtype == DType::f32, "custom", "output: expected float32");
      io.output(outputs_.back());
      cuttable_ = cuttable_ && has_samples(outputs_.back(), io.shards());
    }
    cuttable_ = cuttable_ && std::find(cut_.begin(), cut_.end(), true) != cut_.end();
  }

  void forward(const Run& run) override {
    py::gil_scoped_acquire gil;
    for (int part = 0; part < parts(run); ++part) {
      const py::tuple given = arguments(run, part);
      const py::tuple got = results(forward_(*given));
      check(got.size() == outputs_.size(), "custom", "forward: expected ", outputs_.size(), " outputs, got ",
            got.size());
      for (size_t i = 0; i < outputs_.size(); ++i) {
        const int j = static_cast<int>(i);
        store(got[i], cut(run, run.out(j), part), cut(run, outputs_[i], part), false);
      }
    }
  }

  void backward(const Run& run) override {
    py::gil_scoped_acquire gil;
    const int n = parts(run);
    std::vector<std::vector<std::vector<float>>> sums(inputs_.size());  // by input and shard
    for (int part = 0; part < n; ++part) {
      const py::tuple got = results(backward_(*py::tuple(gradients_and_inputs(run, part))));
      check(got.size() == inputs_.size(), "custom", "backward: expected ", inputs_.size(), " gradients, got ",
            got.size());
      for (size_t i = 0; i < inputs_.size(); ++i) {
        const int j = static_cast<int>(i);
        if (!run.wants(j)) continue;
        check(!got[i].is_none(), "custom", "backward: gradient of input ", i, " is wanted, got None");
        if (n == 1 && run.sink(j)) into_sink(got[i], run.sink(j), inputs_[i]);
        else if (n == 1) store(got[i], run.din(j), inputs_[i], run.accumulate(j));
        else if (cut_[i]) store(got[i], cut(run, run.din(j), part), cut(run, inputs_[i], part), run.accumulate(j));
        else sums[i].push_back(numbers(got[i], inputs_[i]));
      }
    }
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (!sums[i].empty()) finish(sums[i], run, static_cast<int>(i));
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

  // Return true for a value whose first axis is the samples, so that a shard is a range of its rows.
  static bool has_samples(const TensorSpec& spec, const Shards& shards) {
    return spec.shape.size() >= 2 && spec.shape[0] % shards.samples() == 0;
  }

  // Return the count of calls of the functions: one for each shard, so that no bit depends on how a batch is
  // sharded; or one if the values cannot be split along samples.
  int parts(const Run& run) const { return cuttable_ ? run.shards().count() : 1; }

  TensorSpec cut(const Run& run, const TensorSpec& spec, int part) const {
    if (parts(run) == 1) return spec;
    TensorSpec one = spec;
    one.shape[0] = run.shards().row_begin(part + 1, spec.shape[0]) - run.shards().row_begin(part, spec.shape[0]);
    return one;
  }

  Tensor cut(const Run& run, const Tensor& t, int part) const {
    if (parts(run) == 1 || !t) return t;
    const int64_t begin = run.shards().row_begin(part, t.rows), end = run.shards().row_begin(part + 1, t.rows);
    Tensor one = t;
    one.data = static_cast<std::byte*>(t.data) + begin * t.stride * size_of(t.dtype);
    one.rows = end - begin;
    return one;
  }

  py::object argument(const Run& run, size_t i, int part) const {
    const Tensor& t = run.in(static_cast<int>(i));
    return cut_[i] ? array(cut(run, t, part), cut(run, inputs_[i], part)) : array(t, inputs_[i]);
  }

  py::tuple arguments(const Run& run, int part) const {
    py::tuple a(inputs_.size());
    for (size_t i = 0; i < inputs_.size(); ++i) a[i] = argument(run, i, part);
    return a;
  }

  // Return the arguments of backward: the gradients of the outputs, zeros for unused ones, then the inputs.
  py::list gradients_and_inputs(const Run& run, int part) const {
    py::list given;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const Tensor& d = run.dout(static_cast<int>(i));
      const TensorSpec spec = cut(run, outputs_[i], part);
      if (d) {
        given.append(array(cut(run, d, part), spec));
        continue;
      }
      py::object zero = empty(spec.shape, DType::f32);
      std::memset(writable(zero, DType::f32, "custom", "zeros").data, 0, spec.bytes());
      given.append(zero);
    }
    for (const py::handle& a : arguments(run, part)) given.append(a);
    return given;
  }

  static std::vector<float> numbers(const py::handle& a, const TensorSpec& spec) {
    py::object hold;
    const Tensor from = checked(a, spec, &hold);
    std::vector<float> copied;
    copied.reserve(static_cast<size_t>(spec.size()));
    for (int64_t r = 0; r < from.rows; ++r)
      copied.insert(copied.end(), from.f32() + r * from.stride, from.f32() + r * from.stride + from.cols);
    return copied;
  }

  // Add the gradients of an input that every shard reads, by the tree over shards, and write them to their
  // output.
  void finish(std::vector<std::vector<float>>& sums, const Run& run, int i) const {
    shard_tree::pairs(static_cast<int>(sums.size()), [&](int left, int right) {
      for (size_t k = 0; k < sums[left].size(); ++k) sums[left][k] += sums[right][k];
    });
    const int64_t cols = inputs_[i].cols();
    const Tensor total{sums[0].data(), inputs_[i].rows(), cols, cols, DType::f32};
    if (run.din(i)) add_to(total, run.din(i), run.accumulate(i));
    else add_to(total, run.sink(i));
  }

  static Tensor checked(const py::handle& a, const TensorSpec& spec, py::object* hold) {
    const Tensor t = tensor(a, DType::f32, "custom", "result", hold);
    check(shape_of(a) == spec.shape, "custom", "result: expected ", spec.text());
    return t;
  }

  static void store(const py::handle& a, const Tensor& to, const TensorSpec& spec, bool add) {
    py::object hold;
    add_to(checked(a, spec, &hold), to, add);
  }

  static void add_to(const Tensor& from, const Tensor& to, bool add) {
    for (int64_t r = 0; r < to.rows; ++r)
      for (int64_t c = 0; c < to.cols; ++c) {
        float& place = to.f32()[r * to.stride + c];
        place = from.f32()[r * from.stride + c] + (add ? place : 0.0f);
      }
  }

  static void into_sink(const py::handle& a, const GradSink& sink, const TensorSpec& spec) {
    py::object hold;
    add_to(checked(a, spec, &hold), sink);
  }

  static void add_to(const Tensor& from, const GradSink& sink) {
    for (int64_t r = 0; r < from.rows; ++r)
      for (int64_t c = 0; c < from.cols; ++c) {
        const int64_t i = r * from.cols + c;
        float v = from.f32()[r * from.stride + c];
        for (int k = 0; k < sink.n_add; ++k) v = sink.add[k][i] + v;
        sink.out[i] = v;
      }
  }

  py::object forward_, backward_;
  std::vector<bool> whole_;  // inputs of the tape that are weights
  std::vector<bool> cut_;    // inputs whose first axis is the samples
  bool cuttable_ = true;
  std::vector<TensorSpec> inputs_, outputs_;
};

}  // namespace

std::unique_ptr<Node> custom_node(py::object forward, py::object backward, std::vector<bool> whole) {
  check(PyCallable_Check(forward.ptr()) && PyCallable_Check(backward.ptr()), "custom",
        "forward and backward: expected two functions");
  return std::make_unique<CustomNode>(std::move(forward), std::move(backward), std::move(whole));
}

}  // namespace mudd::bind
