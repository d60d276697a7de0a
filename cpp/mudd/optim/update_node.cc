#include "mudd/optim/update_node.h"

#include <algorithm>

#include "mudd/base/check.h"
#include "mudd/base/row_tasks.h"

namespace mudd {
namespace {

enum Input { kWeights, kGradient, kMoment };
constexpr const char* kNames[] = {"w", "gradient", "moment"};

class UpdateNode : public Node {
 public:
  UpdateNode(const char* op, std::span<const KernelRow<UpdateKernels>> rows, const UpdateFactors& factors,
             const UpdateSlopes& slopes)
      : op_(op), rows_(rows), factors_(factors), slopes_(slopes) {}

  const char* op() const override { return op_; }
  bool backward_reads_input(int) const override { return false; }

  void infer(Inference& io) override {
    const TensorSpec& w = io.input(kWeights);
    for (int i = 0; i < 3; ++i) {
      check(io.has_input(i), op_, kNames[i], ": missing");
      check(io.input(i).dtype == DType::f32 && io.input(i).shape == w.shape, op_, kNames[i],
            ": expected float32 of the shape of w, ", w.text(), ", got ", io.input(i).text());
    }
    io.output(w);
    io.output(w);
    kernels_ = &choose(rows_);
  }

  void forward(const Run& run) override {
    const Tensor &w = run.in(kWeights), &g = run.in(kGradient), &m = run.in(kMoment);
    const Tensor &new_w = run.out(0), &new_m = run.out(1);
    parallel_rows(w.rows, w.cols, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        float *to_w = new_w.f32() + r * new_w.stride, *to_m = new_m.f32() + r * new_m.stride;
        std::copy_n(w.f32() + r * w.stride, w.cols, to_w);
        std::copy_n(m.f32() + r * m.stride, m.cols, to_m);
        const float* grads[1] = {g.f32() + r * g.stride};
        kernels_->update(w.cols, to_w, to_m, nullptr, grads, 1, factors_);
      }
    });
  }

  void backward(const Run& run) override {
    const float from_w[] = {slopes_.w, slopes_.gradient, slopes_.moment};
    const float from_m[] = {0, slopes_.gradient_from_moment, slopes_.moment_from_moment};
    for (int i = 0; i < 3; ++i)
      if (run.wants(i)) put(run.dout(0), from_w[i], run.dout(1), from_m[i], run.din(i), run.accumulate(i));
  }

 private:
  // An absent gradient of an output is zero.
  static void put(const Tensor& dw, float a, const Tensor& dm, float b, const Tensor& to, bool accumulate) {
    parallel_rows(to.rows, to.cols, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        for (int64_t c = 0; c < to.cols; ++c) {
          float& at = to.f32()[r * to.stride + c];
          if (!accumulate) at = 0;
          if (dw) at += a * dw.f32()[r * dw.stride + c];
          if (dm) at += b * dm.f32()[r * dm.stride + c];
        }
    });
  }

  const char* op_;
  std::span<const KernelRow<UpdateKernels>> rows_;
  UpdateFactors factors_;
  UpdateSlopes slopes_;
  const UpdateKernels* kernels_ = nullptr;
};

}  // namespace

std::unique_ptr<Node> make_update_node(const char* op, std::span<const KernelRow<UpdateKernels>> rows,
                                       const UpdateFactors& factors, const UpdateSlopes& slopes) {
  return std::make_unique<UpdateNode>(op, rows, factors, slopes);
}

}  // namespace mudd
