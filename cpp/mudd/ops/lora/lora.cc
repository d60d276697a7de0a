#include "mudd/ops/lora/lora.h"

#include <algorithm>
#include <utility>

#include "mudd/base/arena.h"
#include "mudd/graph/row_sums.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/ops/dropout/dropout.h"
#include "mudd/ops/linear/linear.h"
#include "mudd/ops/lora/node.h"

namespace mudd {

void Lora::infer(Inference& io) {
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
  dropout_ = &choose(dropout_rows());
}

TensorSpec Lora::output_spec(const Inference& io) {
  const TensorSpec &x = io.input(kX), &w = io.input(kW), &a = io.input(kA), &b = io.input(kB);
  check(is_real(x), "lora", "x: expected float32, got ", name_of(x.dtype));
  check(!x.shape.empty() && x.cols() > 0, "lora", "x: expected at least one column, got ", x.text());
  const auto matrix = [](const TensorSpec& m, const char* name, int64_t rows, const char* why) {
    check(m.dtype == DType::f32 && m.shape.size() == 2 && m.cols() > 0, "lora", name,
          ": expected a float32 matrix, got ", m.text());
    check(m.shape[0] == rows, "lora", name, ": expected ", rows, " rows as ", why, " has columns, got ", m.text());
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

void Lora::count_flops() {
  const auto cost = [&](int64_t k, int64_t n) {
    return 2.0 * static_cast<double>(rows_) * static_cast<double>(k) * static_cast<double>(n);
  };
  const bool wants_u = wants_x_ || wants_a_;
  flops_ = cost(k_, n_) + cost(k_, rank_) + cost(rank_, n_);
  backward_flops_ = (int{wants_x_} + int{wants_w_}) * cost(k_, n_) +
                    (int{wants_u} + int{wants_b_}) * cost(rank_, n_) +
                    (int{wants_x_} + int{wants_a_}) * cost(k_, rank_);
}

int64_t Lora::book_forward() {
  int64_t end = 0;
  const auto book = [&](int64_t bytes) { return std::exchange(end, end + aligned(bytes)); };
  forward_.a = book(packed_bytes(k_, rank_, compute_));
  forward_.b = book(packed_bytes(rank_, n_, compute_));
  forward_.w = book(packs_ ? packed_bytes(k_, n_, compute_) : 0);
  forward_.copy = book(drops_ ? rows_ * k_ * kFloat : 0);
  return end;
}

int64_t Lora::book_backward(const Shards& shards) {
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

const OpSpec& lora_op() {
  static const OpSpec spec{
      .name = "lora",
      .help = R"(y = x w + scale (d x) a b + bias + residual (Hu et al. 2021): a matrix and its low-rank adapter.

x [..., K], w [K, N], a [K, rank], b [rank, N], bias [N]; residual has the shape of y. d is dropout: it drops
elements of x with probability `rate` and divides the others by 1 - rate, if a gradient of a is computed. The random
draws depend only on seed, `purpose`, step, sample, position and channel.)",
      .inputs = {{"x"}, {"w"}, {"a"}, {"b"}, {"bias", OpInput::kOptional}, {"residual", OpInput::kOptional}},
      .outputs = {{"y"}},
      .options = {option::number("scale", 1, {}, "factor of the adapter's output (alpha / rank)"),
                  option::number("rate", 0, from_to_below(0, 1), "probability of dropping an element of x"),
                  option::word("purpose", "lora", {}, "key of the random draws")},
      .make = make<Lora>,
      .kernels =
          [] {
            return std::vector{chosen(dropout_rows()), chosen(linear_rows()), chosen(gemm_rows(DType::f32)),
                               chosen(gemm_rows(DType::bf16))};
          },
  };
  return spec;
}

}  // namespace mudd
