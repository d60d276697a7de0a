#include "mudd/ops/depth_mix/generator.h"

#include <algorithm>
#include <array>

#include "mudd/base/check.h"
#include "mudd/graph/right_operand.h"
#include "mudd/graph/sink_gradient.h"
#include "mudd/kernels/convert/wide_rows.h"

namespace mudd {
namespace {

constexpr int64_t kFloat = sizeof(float);

// c[m, n] = a[m, k] b, a and c contiguous.
GemmBlock gemm_of(DType compute, const float* a, int64_t k, const void* b, float* c, int64_t n, int64_t m) {
  GemmBlock g;
  g.compute = compute;
  g.a = a;
  g.lda = g.k = k;
  g.b = b;
  g.c = c;
  g.ldc = g.n = n;
  g.m = m;
  return g;
}

}  // namespace

void MixGenerator::infer(Inference& io, int64_t rows, int64_t width, int64_t count) {
  rows_ = rows, width_ = width, count_ = count;
  check(io.has_input(kMixW1) == io.has_input(kMixW2), "depth_mix", "w1 and w2: expected both or none");
  check(io.has_input(kMixW1) || !io.has_input(kMixGeneratorGain), "depth_mix", "generator_gain: needs w1 and w2");
  hidden_ = 0;
  if (!io.has_input(kMixW1)) return;
  const TensorSpec &w1 = io.input(kMixW1), &w2 = io.input(kMixW2), &gain = io.input(kMixGeneratorGain);
  check(w1.dtype == DType::f32 && w1.shape.size() == 2 && w1.shape[0] == width && w1.cols() > 0, "depth_mix",
        "w1: expected float32[", width, ", K], got ", w1.text());
  check(w2.dtype == DType::f32 && w2.shape == std::vector<int64_t>{w1.cols(), count}, "depth_mix",
        "w2: expected float32[", w1.cols(), ", ", count, "], got ", w2.text());
  has_gain_ = io.has_input(kMixGeneratorGain);
  check(!has_gain_ || (gain.dtype == DType::f32 && gain.shape == std::vector<int64_t>{width}), "depth_mix",
        "generator_gain: expected float32[", width, "], got ", gain.text());
  hidden_ = w1.cols();
  const bool newest_given = io.has_input(kMixNewest);
  wants_x_ = io.wants_gradient(newest_given ? static_cast<int>(kMixNewest) : io.n_inputs() - 1);
  wants_w_ = io.wants_gradient(kMixW1) || io.wants_gradient(kMixW2);
  wants_gain_ = has_gain_ && io.wants_gradient(kMixGeneratorGain);
  compute_ = io.compute();
  packs_w1_ = !io.may_stay_packed(kMixW1);
  packs_w2_ = !io.may_stay_packed(kMixW2);
  for (const auto& [input, here] : {std::pair{kMixW1, packs_w1_}, std::pair{kMixW2, packs_w2_}}) {
    if (here) continue;
    io.pack(input, Pack::plain);
    if (io.training()) io.pack(input, Pack::transposed);
  }
  io.saved(rows * count * kFloat);
  io.saved(rows * hidden_ * size_of(compute_));
  io.saved(rows * kFloat);
  const int shards = io.shards().count();
  gemm_bytes_ = wants_w_ ? std::max(grad_scratch_bytes(width_, hidden_, shards, 1, compute_),
                                    grad_scratch_bytes(hidden_, count_, shards, 1, compute_))
                         : 0;
  kernels_ = &choose(depth_mix_rows());
  norm_ = &choose(rms_norm_rows());
}

MixGenerator::Scratch MixGenerator::forward_scratch(Pieces& pieces) const {
  Scratch s;
  if (!present()) return s;
  if (packs_w1_) s.w1 = pieces.bytes(packed_bytes(width_, hidden_, compute_));
  if (packs_w2_) s.w2 = pieces.bytes(packed_bytes(hidden_, count_, compute_));
  return s;
}

MixGenerator::Scratch MixGenerator::backward_scratch(const Shards& shards, Pieces& pieces) const {
  Scratch s;
  if (!present()) return s;
  if (packs_w1_) s.w1 = pieces.bytes(packed_bytes(hidden_, width_, compute_));
  if (packs_w2_) s.w2 = pieces.bytes(packed_bytes(count_, hidden_, compute_));
  s.hidden = pieces.bytes(rows_ * hidden_ * size_of(compute_));
  s.dscaled = pieces.bytes(rows_ * hidden_ * size_of(compute_));
  if (has_gain_) s.u = pieces.bytes(rows_ * width_ * size_of(compute_));
  if (wants_gain_) s.gain_partials = pieces.take<float>(RowSums(shards, rows_, width_).bytes() / kFloat);
  s.gemm_scratch = pieces.take<float>(gemm_bytes_ / kFloat);
  return s;
}

MixGenerator::Tile MixGenerator::tile_of(float* base, int64_t rows) const {
  Pieces pieces(reinterpret_cast<std::byte*>(base));
  Tile tile;
  tile.wide = pieces.take<float>(rows * width_);
  tile.hidden = pieces.take<float>(rows * hidden_);
  tile.bytes = pieces.used();
  return tile;
}

int64_t MixGenerator::tile_bytes(int64_t rows) const { return present() ? tile_of(nullptr, rows).bytes : 0; }

void MixGenerator::pack(const Run& run, Pack how, const Scratch& scratch) {
  const RightOperand w1("depth_mix", run, kMixW1, how, scratch.w1);
  const RightOperand w2("depth_mix", run, kMixW2, how, scratch.w2);
  const std::array unpacked{w1.pack, w2.pack};
  pack_weights(unpacked, compute_);
  w1_ = w1.panels(), w2_ = w2.panels();
}

void MixGenerator::start_forward(const Run& run, const Scratch& scratch) {
  if (present()) pack(run, Pack::plain, scratch);
}

void MixGenerator::start_backward(const Run& run, const Scratch& scratch) {
  if (!present()) return;
  pack(run, Pack::transposed, scratch);
  hidden_rows_ = operand(scratch.hidden, hidden_);
  dscaled_rows_ = operand(scratch.dscaled, hidden_);
  u_rows_ = has_gain_ ? operand(scratch.u, width_) : Tensor{};
  gain_partials_ = scratch.gain_partials;
  gemm_scratch_ = scratch.gemm_scratch;
}

void MixGenerator::forward(const Run& run, const Tensor& x, int64_t begin, int64_t end, float* tile) const {
  const int64_t rows = end - begin;
  const float* gain = has_gain_ ? run.in(kMixGeneratorGain).f32() : nullptr;
  const auto [u, hidden, bytes] = tile_of(tile, rows);
  const WideRows xs(x, begin, end);
  norm_->fwd(0, rows, 1, width_, xs.row(begin), xs.stride(), gain, eps_, u, width_,
             run.saved_as<float>(kInverse) + begin);
  GemmBlock g = gemm_of(compute_, u, width_, w1_, hidden, hidden_, rows);
  g.epilogue.activation = activation_;
  g.epilogue.pre_activation = Cells(run.saved(kPre), compute_) + begin * hidden_;
  g.epilogue.pre_stride = hidden_;
  gemm_kernels(compute_).multiply(g);
  float* weights = run.saved_as<float>(kWeights) + begin * count_;
  GemmBlock out = gemm_of(compute_, hidden, hidden_, w2_, weights, count_, rows);
  out.epilogue.bias = run.in(kMixBias).f32();
  gemm_kernels(compute_).multiply(out);
}

void MixGenerator::backward(const Run& run, const Tensor& x, const float* dweights, int64_t begin, int64_t end,
                            int64_t block, Tensor dx, bool accumulate, float* tile) const {
  const int64_t rows = end - begin;
  const float* inverse = run.saved_as<float>(kInverse);
  const WideRows xs(x, begin, end);
  const float* gain = has_gain_ ? run.in(kMixGeneratorGain).f32() : nullptr;
  const auto [du, dhidden, bytes] = tile_of(tile, rows);
  const GemmKernels& gemm = gemm_kernels(compute_);
  gemm.multiply(gemm_of(compute_, dweights + begin * count_, count_, w2_, dhidden, hidden_, rows));
  // dw1 = u^T dpre. Without a gain u is x times the row's inverse rms, and that factor goes to dpre instead.
  {
    const WideRows pre(operand(run.saved(kPre), hidden_), begin, end);
    const NarrowRows hidden(hidden_rows_, begin, end), dscaled(dscaled_rows_, begin, end);
    kernels_->generator(begin, end, hidden_, activation_, pre.base(), has_gain_ ? nullptr : inverse, dhidden,
                        hidden.base(), dscaled.base());
  }
  if (has_gain_) {
    float scratch_inverse[kRowBlock];
    const NarrowRows u(u_rows_, begin, end);
    norm_->fwd(0, rows, 1, width_, xs.row(begin), xs.stride(), gain, eps_, u.row(begin), width_, scratch_inverse);
  }
  if (!dx && !gain_partials_) return;
  gemm.multiply(gemm_of(compute_, dhidden, hidden_, w1_, du, width_, rows));
  float* dgain = gain_partials_ ? RowSums(run.shards(), rows_, width_).partial(gain_partials_, block) : nullptr;
  norm_->bwd(0, rows, 1, width_, xs.row(begin), xs.stride(), gain, inverse + begin, du, width_,
             dx ? dx.f32() + begin * dx.stride : nullptr, dx.stride, accumulate, dgain);
}

void MixGenerator::finish_backward(const Run& run, const Tensor& x, const float* dweights) const {
  if (gain_partials_) RowSums(run.shards(), rows_, width_).finish(gain_partials_, run.sink(kMixGeneratorGain));
  const Tensor da{const_cast<float*>(dweights), rows_, count_, count_};
  const auto gradient = [&](int input, const Tensor& left, const Tensor& right) {
    weight_gradient(
        SinkGradient("depth_mix", left, right, run.shards(), run.sink(input), gemm_scratch_, gemm_bytes_, compute_)
            .block);
  };
  if (run.wants(kMixW1)) gradient(kMixW1, has_gain_ ? u_rows_ : x, dscaled_rows_);
  if (run.wants(kMixW2)) gradient(kMixW2, hidden_rows_, da);
}

}  // namespace mudd
