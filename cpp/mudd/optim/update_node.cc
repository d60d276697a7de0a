#include "mudd/optim/update_node.h"

#include <algorithm>
#include <utility>

#include "mudd/base/check.h"
#include "mudd/base/row_tasks.h"

namespace mudd {
namespace {

enum Input { kWeights, kGradient, kFirst, kSecond };

class UpdateNode final : public Node {
 public:
  explicit UpdateNode(UpdateNodeParts parts) : is_(std::move(parts)) {}

  const char* op() const override { return is_.op; }
  bool backward_reads_input(int) const override { return is_.backward_reads_inputs; }

  void infer(Inference& io) override {
    const TensorSpec& w = io.input(kWeights);
    for (int i = 0; i < inputs(); ++i) {
      check(io.has_input(i), is_.op, name_of(i), ": missing");
      check(io.input(i).dtype == DType::f32 && io.input(i).shape == w.shape, is_.op, name_of(i),
            ": expected float32 of the shape of w, ", w.text(), ", got ", io.input(i).text());
    }
    for (int i = 0; i < 1 + is_.moments; ++i) io.output(w);
    kernels_ = &choose(is_.rows);
  }

  void forward(const Run& run) override {
    const Tensor &w = run.in(kWeights), &gradient = run.in(kGradient);
    parallel_rows(w.rows, w.cols, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        float* to[1 + kMaxMoments] = {};  // w, then the moments: copied, then updated in place
        for (int i = 0; i < 1 + is_.moments; ++i) {
          const Tensor &from = run.in(i == 0 ? kWeights : kGradient + i), &out = run.out(i);
          to[i] = out.f32() + r * out.stride;
          std::copy_n(from.f32() + r * from.stride, w.cols, to[i]);
        }
        const float* grads[1] = {gradient.f32() + r * gradient.stride};
        kernels_->update(w.cols, to[0], to[1], to[2], grads, 1, is_.factors);
      }
    });
  }

  void backward(const Run& run) override {
    int wanted = 0;
    while (wanted < inputs() && !run.wants(wanted)) ++wanted;
    if (wanted == inputs()) return;
    const Tensor& any = run.din(wanted);
    parallel_rows(any.rows, any.cols, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        for (int64_t c = 0; c < any.cols; ++c) put(run, is_.backward(element(run, r, c)), r, c);
    });
  }

 private:
  int inputs() const { return 2 + is_.moments; }
  const char* name_of(int input) const {
    constexpr const char* kOne[] = {"w", "gradient", "moment"};
    constexpr const char* kTwo[] = {"w", "gradient", "first", "second"};
    return is_.moments == 1 ? kOne[input] : kTwo[input];
  }

  static float at(const Tensor& t, int64_t r, int64_t c) { return t ? t.f32()[r * t.stride + c] : 0; }

  UpdateElement element(const Run& run, int64_t r, int64_t c) const {
    const bool two = is_.moments > 1;
    UpdateElement e{
        .dw = at(run.dout(0), r, c), .dfirst = at(run.dout(1), r, c), .dsecond = two ? at(run.dout(2), r, c) : 0};
    if (is_.backward_reads_inputs) {
      e.gradient = at(run.in(kGradient), r, c);
      e.first = at(run.in(kFirst), r, c);
      if (two) e.second = at(run.in(kSecond), r, c);
    }
    return e;
  }

  void put(const Run& run, const UpdateGradients& gradients, int64_t r, int64_t c) const {
    for (int i = 0; i < inputs(); ++i) {
      if (!run.wants(i)) continue;
      float& to = run.din(i).f32()[r * run.din(i).stride + c];
      to = run.accumulate(i) ? to + gradients[i][0] : gradients[i][0];
      to += gradients[i][1];
    }
  }

  UpdateNodeParts is_;
  const UpdateKernels* kernels_ = nullptr;
};

}  // namespace

std::function<UpdateGradients(const UpdateElement&)> linear_backward(const UpdateSlopes& slopes) {
  return [slopes](const UpdateElement& e) {
    UpdateGradients gradients = {};
    for (size_t i = 0; i < slopes.size(); ++i) gradients[i] = {slopes[i][0] * e.dw, slopes[i][1] * e.dfirst};
    return gradients;
  };
}

std::unique_ptr<Node> make_update_node(UpdateNodeParts parts) {
  return std::make_unique<UpdateNode>(std::move(parts));
}

}  // namespace mudd
