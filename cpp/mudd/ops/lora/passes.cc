// Forward and backward of lora.
#include <array>
#include <optional>

#include "mudd/graph/sink_gradient.h"
#include "mudd/kernels/convert/wide_rows.h"
#include "mudd/kernels/gemm/of_tensors.h"
#include "mudd/ops/linear/pre_gradient.h"
#include "mudd/ops/lora/node.h"

namespace mudd {

RightOperand Lora::right(const Run& run, int input, Pack how, std::byte* scratch) {
  return {"lora", run, input, how, scratch};
}

// y = base + d x, by rows.
void Lora::drop(const Run& run, const Tensor& x, const Tensor& base, const Tensor& y) const {
  const Dropout draws(rate_, run.step().seed, purpose_, run.step().step, run.step().first_sample);
  parallel_wide_rows({&y, &x, &base}, [&](int64_t begin, int64_t end) {
    const WideRows from(x, begin, end), added(base, begin, end);
    const NarrowRows to(y, begin, end);
    dropout_->apply(draws, {begin, end, y.cols, time_, from.base(), from.stride(), base ? added.base() : nullptr,
                            base ? added.stride() : 0, to.base(), to.stride()});
  });
}

// Return d x: x itself without dropout, else a copy in fp32.
Tensor Lora::dropped(const Run& run, const Tensor& x, std::byte* copy) const {
  if (!drops_) return x;
  const Tensor y{copy, rows_, k_, k_};
  drop(run, x, Tensor{}, y);
  return y;
}

void Lora::forward(const Run& run) {
  const Tensor &x = run.in(kX), &y = run.out(0);
  std::byte* const scratch = run.scratch();
  LowRankGemm all;
  all.scale = scale_;
  all.down = matmul_of(dropped(run, x, scratch + forward_.copy), {run.saved(0), rows_, rank_, rank_}, compute_);
  right(run, kA, Pack::plain, scratch + forward_.a).put(&all.down);
  all.up = matmul_of({run.saved(0), rows_, rank_, rank_}, y, compute_);
  right(run, kB, Pack::plain, scratch + forward_.b).put(&all.up);
  all.full = matmul_of(x, y, compute_);
  if (run.has_in(kResidual)) add_residual(run.in(kResidual), &all.full);
  right(run, kW, Pack::plain, packs_ ? scratch + forward_.w : nullptr).put(&all.full);
  if (run.has_in(kBias)) all.full.epilogue.bias = run.in(kBias).f32();
  multiply_low_rank(all);
}

void Lora::backward(const Run& run) {
  const Tensor& dy = run.dout(0);
  std::byte* const scratch = run.scratch();
  if (run.wants(kBias))
    make_pre_gradient({.dy = dy}, run.shards(), run.sink(kBias),
                      reinterpret_cast<float*>(scratch + backward_.bias));
  if (!run.wants(kX) && !run.wants(kA)) return sum_weights(run, dy, {}, {});
  const Tensor du{scratch + backward_.u, rows_, rank_, rank_};
  LowRankGemm all;
  all.scale = scale_;
  all.down = matmul_of(dy, du, compute_);
  right(run, kB, Pack::transposed, scratch + backward_.b).put(&all.down);
  const bool wants_x = run.wants(kX);
  if (wants_x && !drops_) {
    all.up = matmul_of(du, run.din(kX), compute_);
    right(run, kA, Pack::transposed, scratch + backward_.a).put(&all.up);
    all.full = matmul_of(dy, run.din(kX), compute_);
    if (run.accumulate(kX)) add_residual(run.din(kX), &all.full);
    right(run, kW, Pack::transposed, packs_ ? scratch + backward_.w : nullptr).put(&all.full);
  }
  const Tensor x = run.wants(kA) ? dropped(run, run.in(kX), scratch + backward_.copy) : Tensor{};
  sum_weights(run, dy, x, all);
  if (wants_x && drops_) dropped_gradient(run, dy, du);
}

// Compute the gradients of weights, in one parallel region with `all` if that has a GEMM. x: the input of a.
void Lora::sum_weights(const Run& run, const Tensor& dy, const Tensor& x, LowRankGemm all) const {
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

// Compute dx with dropout between x and the adapter: first d (du a^T), then add dy w^T.
void Lora::dropped_gradient(const Run& run, const Tensor& dy, const Tensor& du) const {
  const Tensor &dx = run.din(kX), low{run.scratch() + backward_.copy, rows_, k_, k_};
  GemmBlock g = matmul_of(du, low, compute_);
  right(run, kA, Pack::transposed, run.scratch() + backward_.a).put(&g);
  multiply(g);
  drop(run, low, run.accumulate(kX) ? dx : Tensor{}, low);
  g = matmul_of(dy, dx, compute_);
  right(run, kW, Pack::transposed, packs_ ? run.scratch() + backward_.w : nullptr).put(&g);
  add_residual(low, &g);
  multiply(g);
}

}  // namespace mudd
