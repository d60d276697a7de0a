#include "mudd/ops/add/add.h"

#include <algorithm>

#include "mudd/graph/node.h"
#include "mudd/kernels/convert/wide_rows.h"

namespace mudd {

std::span<const KernelRow<AddKernels>> add_rows() {
  static const KernelRow<AddKernels> rows[] = {MUDD_KERNEL_ROWS(add_f32)};
  return rows;
}

namespace {

enum Input { kA, kB };

class Add : public Node {
 public:
  explicit Add(const Attributes&) {}

  const char* op() const override { return "add"; }
  bool native_bf16() const override { return true; }
  bool backward_reads_input(int) const override { return false; }
  int passes_gradient() const override { return kA; }
  int in_place_input() const override { return kA; }

  void infer(Inference& io) override {
    const TensorSpec &a = io.input(kA), &b = io.input(kB);
    check(io.has_input(kA) && io.has_input(kB), "add", "inputs: expected a and b");
    check(is_real(a), "add", "a: expected float32, got ", name_of(a.dtype));
    check(is_real(b) && b.shape == a.shape, "add", "b: expected ", a.text(), ", got ", b.text());
    io.output(a);
    kernels_ = &choose(add_rows());
  }

  void forward(const Run& run) override { sum(run.in(kA), run.in(kB), run.out(0)); }

  void backward(const Run& run) override {
    if (!run.wants(kB)) return;
    const Tensor &dy = run.dout(0), &db = run.din(kB);
    if (run.accumulate(kB)) return sum(db, dy, db);
    parallel_wide_rows({&dy, &db}, [&](int64_t begin, int64_t end) {
      const WideRows from(dy, begin, end);
      const NarrowRows to(db, begin, end);
      for (int64_t r = begin; r < end; ++r) std::copy_n(from.row(r), dy.cols, to.row(r));
    });
  }

 private:
  void sum(const Tensor& a, const Tensor& b, const Tensor& y) const {
    parallel_wide_rows({&y, &a, &b}, [&](int64_t begin, int64_t end) {
      const WideRows left(a, begin, end), right(b, begin, end);
      const NarrowRows to(y, begin, end);
      kernels_->add(begin, end, y.cols, left.base(), left.stride(), right.base(), right.stride(), to.base(),
                    to.stride());
    });
  }

  const AddKernels* kernels_ = nullptr;
};

}  // namespace

const OpSpec& add_op() {
  static const OpSpec spec{
      .name = "add",
      .help = R"(y = a + b, shapes equal.)",
      .inputs = {{"a"}, {"b"}},
      .outputs = {{"y"}},
      .make = make<Add>,
      .kernels = [] { return std::vector{chosen(add_rows())}; },
  };
  return spec;
}

}  // namespace mudd
