#include "mudd/ops/lora/lora.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "mudd/base/arena.h"
#include "mudd/base/dropout.h"
#include "mudd/base/parallel.h"
#include "mudd/graph/node.h"
#include "mudd/graph/right_operand.h"
#include "mudd/graph/row_sums.h"
#include "mudd/graph/sink_gradient.h"
#include "mudd/kernels/convert/wide_rows.h"
#include "mudd/kernels/gemm/low_rank.h"
#include "mudd/ops/dropout/dropout.h"
#include "mudd/ops/linear/linear.h"

namespace mudd {
namespace {

enum Input { kX, kW, kA, kB, kBias, kResidual };

constexpr int64_t kFloat = sizeof(float);

class Lora final : public Node {
 public:
  explicit Lora(const Attributes& a)
      : scale_(static_cast<float>(a.number("scale"))), rate_(a.number("rate")), purpose_(a.word("purpose")) {}

  const char* op() const override { return "lora"; }
  bool native_bf16() const override { return true; }
  bool weight_like(int i) const override { return i == kW || i == kA || i == kB || i == kBias; }
  bool reads_stored(int i) const override { return i == kW; }
  bool backward_reads_input(int i) const override {
    if (i == kX) return wants_a_ || wants_w_;
    if (i == kB) return wants_a_ || wants_x_;
    return (i == kW || i == kA) && wants_x_;
  }
  bool keeps_f32(int) const override { return has_residual_; }
  int passes_gradient() const override { return has_residual_ ? kResidual : -1; }
  int in_place_input() const override { return has_residual_ ? kResidual : -1; }

  void infer(Inference& io) override {
    TensorSpec y = output_spec(io);
    rows_ = y.rows();
    n_ = y.cols();
    k_ = io.input(kX).cols();
    rank_ = io.input(kA).cols();
    time_ = io.input(kX).shape.size() < 2 ? 1 : io.input(kX).shape[io.input(kX).shape.size() - 2];
    has_residual_ = io.has_input(kResidual);
    wants_x_ = io.wants_gradient(kX);
    wants_w_ = io.wants_gradient(kW);
    wants_a_ = io.wants_gradient(kA);
    wants_b_ = io.wants_gradient(kB);
    wants_bias_ = io.wants_gradient(kBias);
    drops_ = rate_ > 0 && wants_a_;
    compute_ = io.compute();
    count_flops();
    io.saved(rows_ * rank_ * kFloat);
    packs_ = io.packs_when_used(kW, rows_);
    if (!packs_) {
      io.pack(kW, Pack::plain);
      if (wants_x_) io.pack(kW, Pack::transposed);
    }
    io.scratch_forward(book_forward());
    io.scratch_backward(book_backward(io.shards()));
    io.output(std::move(y));
    linear_ = &choose(linear_rows());
    dropout_ = &choose(dropout_rows());
  }

  void forward(const Run& run) override {
    const Tensor &x = run.in(kX), &y = run.out(0);
    std::byte* const scratch = run.scratch();
    LowRankGemm all;
    all.scale = scale_;
    all.down = gemm(dropped(run, x, scratch + forward_.copy), {run.saved(0), rows_, rank_, rank_});
    right(run, kA, Pack::plain, scratch + forward_.a).put(&all.down);
    all.up = gemm({run.saved(0), rows_, rank_, rank_}, y);
    right(run, kB, Pack::plain, scratch + forward_.b).put(&all.up);
    if (run.has_in(kResidual)) add(run.in(kResidual), &all.up);
    all.full = gemm(x, y);
    right(run, kW, Pack::plain, packs_ ? scratch + forward_.w : nullptr).put(&all.full);
    if (run.has_in(kBias)) all.full.epilogue.bias = run.in(kBias).f32();
    add(y, &all.full);
    multiply_low_rank(all);
  }

  void backward(const Run& run) override {
    const Tensor& dy = run.dout(0);
    std::byte* const scratch = run.scratch();
    if (run.wants(kBias)) sum_bias(run, dy, scratch + backward_.bias);
    if (!run.wants(kX) && !run.wants(kA)) return sum_weights(run, dy, {}, {});
    const Tensor du{scratch + backward_.u, rows_, rank_, rank_};
    LowRankGemm all;
    all.scale = scale_;
    all.down = gemm(dy, du);
    right(run, kB, Pack::transposed, scratch + backward_.b).put(&all.down);
    const bool wants_x = run.wants(kX);
    if (wants_x && !drops_) {
      all.up = gemm(du, run.din(kX));
      right(run, kA, Pack::transposed, scratch + backward_.a).put(&all.up);
      if (run.accumulate(kX)) add(run.din(kX), &all.up);
      all.full = gemm(dy, run.din(kX));
      right(run, kW, Pack::transposed, packs_ ? scratch + backward_.w : nullptr).put(&all.full);
      add(run.din(kX), &all.full);
    }
    const Tensor x = run.wants(kA) ? dropped(run, run.in(kX), scratch + backward_.copy) : Tensor{};
    sum_weights(run, dy, x, all);
    if (wants_x && drops_) dropped_gradient(run, dy, du);
  }

 private:
  // Bytes into the scratch of a pass.
  struct Places {
    int64_t a = 0, b = 0, w = 0, copy = 0, u = 0, bias = 0, sums = 0;
  };

  TensorSpec output_spec(const Inference& io) const {
    const TensorSpec &x = io.input(kX), &w = io.input(kW), &a = io.input(kA), &b = io.input(kB);
    check(is_real(x), "lora", "x: expected float32, got ", name_of(x.dtype));
    check(!x.shape.empty() && x.cols() > 0, "lora", "x: expected at least one column, got ", x.text());
    const auto matrix = [](const TensorSpec& m, const char* name, int64_t rows, const char* why) {
      check(m.dtype == DType::f32 && m.shape.size() == 2 && m.cols() > 0, "lora", name,
            ": expected a float32 matrix, got ", m.text());
      check(m.shape[0] == rows, "lora", name, ": expected ", rows, " rows as ", why, " has columns, got ",
            m.text());
    };
    matrix(w, "w", x.cols(), "x");
    matrix(a, "a", x.cols(), "x");
    matrix(b, "b", a.cols(), "a");
    check(b.cols() == w.cols(), "lora", "b: expected ", w.cols(), " columns as w has, got ", b.text());
    TensorSpec y = x;
    y.shape.back() = w.cols();
    check_added(io, "lora", y, kBias, kResidual);
    return y;
  }

  void count_flops() {
    const auto cost = [&](int64_t k, int64_t n) {
      return 2.0 * static_cast<double>(rows_) * static_cast<double>(k) * static_cast<double>(n);
    };
    const bool wants_u = wants_x_ || wants_a_;
    flops_ = cost(k_, n_) + cost(k_, rank_) + cost(rank_, n_);
    backward_flops_ = (int{wants_x_} + int{wants_w_}) * cost(k_, n_) +
                      (int{wants_u} + int{wants_b_}) * cost(rank_, n_) +
                      (int{wants_x_} + int{wants_a_}) * cost(k_, rank_);
  }

  int64_t book_forward() {
    int64_t end = 0;
    const auto book = [&](int64_t bytes) { return std::exchange(end, end + aligned(bytes)); };
    forward_.a = book(packed_bytes(k_, rank_, compute_));
    forward_.b = book(packed_bytes(rank_, n_, compute_));
    forward_.w = book(packs_ ? packed_bytes(k_, n_, compute_) : 0);
    forward_.copy = book(drops_ ? rows_ * k_ * kFloat : 0);
    return end;
  }

  int64_t book_backward(const Shards& shards) {
    int64_t end = 0;
    const auto book = [&](int64_t bytes) { return std::exchange(end, end + aligned(bytes)); };
    backward_.u = book(rows_ * rank_ * kFloat);
    backward_.a = book(wants_x_ ? packed_bytes(rank_, k_, compute_) : 0);
    backward_.b = book(packed_bytes(n_, rank_, compute_));
    backward_.w = book(packs_ && wants_x_ ? packed_bytes(n_, k_, compute_) : 0);
    backward_.copy = book(drops_ ? rows_ * k_ * kFloat : 0);
    backward_.bias = book(wants_bias_ ? RowSums(shards, rows_, n_).bytes() : 0);
    const int count = int{wants_w_} + int{wants_a_} + int{wants_b_};
    const auto sums = [&](bool wanted, int64_t m, int64_t n) {
      return wanted ? grad_scratch_bytes(m, n, shards.count(), count, compute_) : 0;
    };
    sums_bytes_ = std::max({sums(wants_w_, k_, n_), sums(wants_a_, k_, rank_), sums(wants_b_, rank_, n_)});
    backward_.sums = book(sums_bytes_);
    return end;
  }

  // left times a right operand that is still to be put, into c.
  GemmBlock gemm(const Tensor& left, const Tensor& c) const {
    GemmBlock g;
    g.compute = compute_;
    g.a = left.cells();
    g.lda = left.stride;
    g.c = c.cells();
    g.ldc = c.stride;
    g.m = left.rows;
    g.n = c.cols;
    g.k = left.cols;
    return g;
  }

  static void add(const Tensor& t, GemmBlock* g) {
    g->epilogue.residual = t.cells();
    g->epilogue.residual_stride = t.stride;
  }

  RightOperand right(const Run& run, int input, Pack how, std::byte* scratch) const {
    return {"lora", run, input, how, scratch};
  }

  Dropout draws(const Run& run) const {
    return Dropout(rate_, run.step().seed, purpose_, run.step().step, run.step().first_sample);
  }

  // y = base + d x, by rows.
  void drop(const Run& run, const Tensor& x, const Tensor& base, const Tensor& y) const {
    const Dropout draws = this->draws(run);
    parallel_wide_rows({&y, &x, &base}, [&](int64_t begin, int64_t end) {
      const WideRows from(x, begin, end), added(base, begin, end);
      const NarrowRows to(y, begin, end);
      dropout_->apply(draws, {begin, end, y.cols, time_, from.base(), from.stride(), base ? added.base() : nullptr,
                              base ? added.stride() : 0, to.base(), to.stride()});
    });
  }

  // d x: x itself without dropout, else a copy in fp32.
  Tensor dropped(const Run& run, const Tensor& x, std::byte* copy) const {
    if (!drops_) return x;
    const Tensor y{copy, rows_, k_, k_};
    drop(run, x, Tensor{}, y);
    return y;
  }

  // The gradients of weights, beside `all` where that has a GEMM. x: what a sees.
  void sum_weights(const Run& run, const Tensor& dy, const Tensor& x, LowRankGemm all) const {
    float* const sums = reinterpret_cast<float*>(run.scratch() + backward_.sums);
    std::optional<SinkGradient> made[3];
    std::array<GradBlock, 3> blocks;
    size_t count = 0;
    const auto sum = [&](int input, const Tensor& left, const Tensor& right) {
      if (!run.wants(input)) return;
      made[count].emplace("lora", left, right, run.shards(), run.sink(input), sums, sums_bytes_, compute_);
      blocks[count] = made[count]->block;
      ++count;
    };
    const Tensor u{run.saved(0), rows_, rank_, rank_};
    sum(kW, run.in(kX), dy);
    sum(kA, x, {run.scratch() + backward_.u, rows_, rank_, rank_});
    sum(kB, u, dy);
    all.gradients = {blocks.data(), count};
    if (all.down.m > 0) multiply_low_rank(all);
    else if (count > 0) weight_gradients(all.gradients);
  }

  // dx with dropout between x and the adapter: d (du a^T) first, then dy w^T on top.
  void dropped_gradient(const Run& run, const Tensor& dy, const Tensor& du) const {
    const Tensor &dx = run.din(kX), low{run.scratch() + backward_.copy, rows_, k_, k_};
    GemmBlock g = gemm(du, low);
    right(run, kA, Pack::transposed, run.scratch() + backward_.a).put(&g);
    multiply(g);
    drop(run, low, run.accumulate(kX) ? dx : Tensor{}, low);
    g = gemm(dy, dx);
    right(run, kW, Pack::transposed, packs_ ? run.scratch() + backward_.w : nullptr).put(&g);
    add(low, &g);
    multiply(g);
  }

  void sum_bias(const Run& run, const Tensor& dy, std::byte* scratch) const {
    float* const partials = reinterpret_cast<float*>(scratch);
    const RowSums sums(run.shards(), rows_, n_);
    parallel_for(sums.blocks(), [&](int64_t task, int) {
      int64_t begin = 0, end = 0;
      sums.range(task, &begin, &end);
      const WideRows from(dy, begin, end);
      linear_->bwd(begin, end, n_, Activation::none, nullptr, false, from.base(), from.stride(), nullptr,
                   sums.partial(partials, task));
    });
    sums.finish(partials, run.sink(kBias));
  }

  float scale_;
  double rate_;
  std::string purpose_;
  bool has_residual_ = false, wants_x_ = true, wants_w_ = true, wants_a_ = true, wants_b_ = true,
       wants_bias_ = true, drops_ = false, packs_ = true;
  DType compute_ = DType::f32;
  int64_t rows_ = 0, k_ = 0, n_ = 0, rank_ = 0, time_ = 1;
  Places forward_, backward_;
  int64_t sums_bytes_ = 0;  // booked for the gradients of weights
  const LinearKernels* linear_ = nullptr;
  const DropoutKernels* dropout_ = nullptr;
};

}  // namespace

const OpSpec& lora_op() {
  static const OpSpec spec{
      .name = "lora",
      .help = R"(y = x w + scale (d x) a b + bias + residual (Hu et al. 2021): a matrix and its low-rank adapter.

x [..., K], w [K, N], a [K, rank], b [rank, N], bias [N], residual like y. d drops numbers of x with probability
`rate` and divides the others by 1 - rate, only where a gradient of a is wanted; the draws depend on seed, `purpose`,
step, sample, position and channel alone.)",
      .inputs = {{"x"}, {"w"}, {"a"}, {"b"}, {"bias", OpInput::kOptional}, {"residual", OpInput::kOptional}},
      .outputs = {{"y"}},
      .options = {option::number("scale", 1, {}, "factor of what the adapter adds (alpha / rank)"),
                  option::number("rate", 0, from_to_below(0, 1), "probability of dropping a number of x"),
                  option::word("purpose", "lora", {}, "key of the random draws")},
      .make = make<Lora>,
  };
  return spec;
}

}  // namespace mudd
