#include "bind/own_optimizer.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "bind/numpy.h"
#include "mudd/base/check.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/optim/update.h"

namespace mudd::bind {
namespace {

// Never destroyed: the function outlives the interpreter.
struct OwnSpec : OptimizerSpec {
  py::object update;
  std::vector<std::string> moment_names;
};

class OwnOptimizer final : public Optimizer {
 public:
  OwnOptimizer(const OptimizerSettings& settings, const OwnSpec& own) : Optimizer(settings), own_(own) {}

  bool update(std::span<UpdateParameter> matrices, int64_t n, double grad_scale, std::byte*) const override {
    const py::gil_scoped_acquire gil;
    bool finite = true;
    for (const UpdateParameter& p : matrices)
      if (p.rows * p.cols > 0) finite &= update_one(p, n, static_cast<float>(grad_scale));
    return finite;
  }

 private:
  bool update_one(const UpdateParameter& p, int64_t n, float grad_scale) const {
    const int64_t size = p.rows * p.cols;
    const std::vector<int64_t> shape =
        own_.whole_matrices ? std::vector<int64_t>{p.rows, p.cols} : std::vector<int64_t>{size};
    py::object w = empty(shape, DType::f32), g = empty(shape, DType::f32);
    std::memcpy(numbers(w), p.w, size * sizeof(float));
    sum_gradients(p, size, grad_scale, numbers(g));
    py::dict state;
    for (size_t k = 0; k < own_.moment_names.size(); ++k) {
      py::object moment = empty(shape, DType::f32);
      read_moment(p, k, size, numbers(moment));
      state[py::str(own_.moment_names[k])] = moment;
    }
    state["step"] = n;
    state["decay"] = p.decay;
    state["eps"] = p.eps;
    py::object made = own_.update(w, g, state, p.lr, **keywords());
    bool finite = put(made.is_none() ? w : made, "new weights", shape, size, p.w);
    std::vector<float> wide(static_cast<size_t>(size));
    for (size_t k = 0; k < own_.moment_names.size(); ++k) {
      const py::str name(own_.moment_names[k]);
      finite &= put(state[name], own_.moment_names[k].c_str(), shape, size, wide.data());
      write_moment(p, k, size, wide.data());
    }
    repack(p, 0, p.rows, 0, p.cols);
    return finite;
  }

  static float* numbers(const py::object& a) { return writable(a, DType::f32, "optimizer", "array").f32(); }

  static void sum_gradients(const UpdateParameter& p, int64_t size, float scale, float* to) {
    std::vector<float> rows;
    for (int i = 0; i < p.n_grads; ++i) {
      const float* from = p.grads[i];
      if (p.grad_rows[i]) {
        rows.resize(static_cast<size_t>(size));
        p.grad_rows[i]->copy(p.grad_begin, size, rows.data());
        from = rows.data();
      }
      for (int64_t k = 0; k < size; ++k) to[k] = i == 0 ? from[k] : to[k] + from[k];
    }
    for (int64_t k = 0; k < size; ++k) to[k] *= scale;
  }

  void read_moment(const UpdateParameter& p, size_t which, int64_t size, float* to) const {
    if (which > 0) std::memcpy(to, p.v, size * sizeof(float));
    else if (moment() == DType::bf16) convert_kernels().widen(size, static_cast<const bf16*>(p.m), to);
    else std::memcpy(to, p.m, size * sizeof(float));
  }

  void write_moment(const UpdateParameter& p, size_t which, int64_t size, const float* from) const {
    if (which > 0) std::memcpy(p.v, from, size * sizeof(float));
    else if (moment() == DType::bf16) convert_kernels().narrow(size, from, static_cast<bf16*>(p.m));
    else std::memcpy(p.m, from, size * sizeof(float));
  }

  // Copy the result of the function; return true if all of it is finite. Error for another shape.
  bool put(const py::handle& made, const char* name, const std::vector<int64_t>& shape, int64_t size,
           float* to) const {
    const char* where = own_.name.c_str();
    const TensorSpec wanted{shape, DType::f32};
    check(shape_of(made, where, name) == shape, where, name, ": expected ", wanted.text(), ", got ",
          TensorSpec{shape_of(made, where, name), dtype_of(made, where, name)}.text());
    py::object hold;
    const Tensor from = tensor(made, DType::f32, where, name, &hold, true);
    std::memcpy(to, from.data, size * sizeof(float));
    float zeros = 0;
    for (int64_t k = 0; k < size; ++k) zeros += 0 * to[k];
    return zeros == 0;
  }

  py::dict keywords() const {
    py::dict given;
    for (const Setting& one : own_.settings) {
      const py::str name(one.name);
      if (std::holds_alternative<double>(one.fallback)) given[name] = settings_.number(one.name);
      else if (std::holds_alternative<bool>(one.fallback)) given[name] = settings_.flag(one.name);
      else given[name] = settings_.whole(one.name);
    }
    return given;
  }

  const OwnSpec& own_;
};

Setting setting_of(const std::string& name, const py::handle& fallback) {
  if (py::isinstance<py::bool_>(fallback)) return {option::flag(name, fallback.cast<bool>(), ""), name};
  if (py::isinstance<py::int_>(fallback)) return {option::integer(name, fallback.cast<int64_t>(), {}, ""), name};
  return {option::number(name, fallback.cast<double>(), {}, ""), name, "", true};
}

}  // namespace

void add_own_optimizer(const std::string& name, py::object update, std::vector<std::string> moments,
                       const py::dict& settings, bool whole) {
  check(!moments.empty() && moments.size() <= static_cast<size_t>(kMaxMoments), name.c_str(),
        "state: expected one or two names, got ", moments.size());
  auto* spec = new OwnSpec;
  spec->name = name;
  spec->moments = static_cast<int>(moments.size());
  spec->whole_matrices = whole;
  if (whole) {
    spec->takes = {Role::matrix, Role::slots, Role::router, Role::mix};
    spec->by_default = {Role::matrix, Role::slots};
    spec->rest = "adamw";
  }
  for (const auto& [key, fallback] : settings) spec->settings.push_back(setting_of(py::str(key), fallback));
  spec->make = [](const OptimizerSettings& s) -> std::unique_ptr<Optimizer> {
    return std::make_unique<OwnOptimizer>(s, static_cast<const OwnSpec&>(s.spec()));
  };
  spec->update = std::move(update);
  spec->moment_names = std::move(moments);
  add_optimizer_spec(*spec);
}

}  // namespace mudd::bind
