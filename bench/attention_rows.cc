// Rows of attention: one key/value head of one sample, q, k and v slices of one slab, in the row's type. FLOPs
// are those that causal attention needs (T^2 hd per matmul): two matmuls in forward, four in backward; the
// recomputed scores of backward are not included.
#include "mudd/ops/attention/attention.h"

#include <algorithm>
#include <memory>

#include "rows.h"

namespace mudd::bench {
namespace {

constexpr int64_t kHeads = 8;  // heads in the slab: the stride between positions is 3 * 8 * hd

struct Case {
  int64_t time;
  Floats slab, out, dout, dslab, lse, delta, scratch;
  std::vector<bf16> slab_bf16, dout_bf16;
  AttentionSlice slice;
  AttentionGrad grad;

  Case(const AttentionKernels& kernels, DType type, int64_t t, int64_t hd) : time(t) {
    const int64_t width = kHeads * hd;
    slab = filled(t * 3 * width), dslab = slab, out = filled(t * width), dout = out;
    for (float& x : slab) x *= 4.0f;
    lse.resize(static_cast<size_t>(t)), delta.resize(static_cast<size_t>(t));
    scratch.resize(static_cast<size_t>(std::max(kernels.fwd_scratch(hd), kernels.bwd_scratch(hd))));
    slice.dim = hd, slice.queries = slice.keys = t, slice.scale = 0.125f;
    slice.q = slab.data(), grad.dout = dout.data();
    if (type == DType::bf16) {
      slab_bf16 = filled_bf16(t * 3 * width), dout_bf16 = filled_bf16(t * width);
      slice.q = slab_bf16.data(), grad.dout = dout_bf16.data();
    }
    slice.k = slice.q + width, slice.v = slice.k + width;
    slice.q_row = slice.k_row = slice.v_row = 3 * width;
    slice.o = out.data(), slice.o_row = width, slice.lse = lse.data();
    grad.key_end = grad.query_end = t, grad.do_row = width, grad.delta = delta.data();
    grad.dq = dslab.data(), grad.dk = grad.dq + width, grad.dv = grad.dk + width;
    grad.dq_row = grad.dk_row = grad.dv_row = 3 * width;
  }

  void forward(const AttentionKernels& kernels) {
    for (int64_t t = 0; t < time; t += kernels.query_tile)
      kernels.fwd(slice, {0, 1, t, std::min(t + kernels.query_tile, time)}, scratch.data());
  }
  void backward(const AttentionKernels& kernels) {
    kernels.delta(slice, grad, 0, time, delta.data());
    kernels.bwd(slice, grad, scratch.data());
  }
};

using Rows = std::vector<KernelRow<AttentionKernels>>;

void add(const Rows& rows, DType type, int64_t time, int64_t dim) {
  const std::string shape = std::to_string(time) + "x" + std::to_string(dim);
  const double matmul = static_cast<double>(time * time * dim);
  register_rows(rows, "forward/" + shape, {.flops = 2 * matmul}, [=](const AttentionKernels& k) {
    return [&k, c = std::make_unique<Case>(k, type, time, dim)] { c->forward(k); };
  });
  register_rows(rows, "backward/" + shape, {.flops = 4 * matmul}, [=](const AttentionKernels& k) {
    auto c = std::make_unique<Case>(k, type, time, dim);
    c->forward(k);
    return [&k, c = std::move(c)] { c->backward(k); };
  });
}

}  // namespace

void add_attention() {
  const auto all = attention_rows(DType::bf16);  // the fp32 rows come last
  const auto second =
      std::ranges::find_if(all, [](const auto& r) { return std::string(r.name) == "attention_f32"; });
  const Rows pairs(all.begin(), second), f32(second, all.end());
  for (const auto& [time, dim] : {std::pair<int64_t, int64_t>{256, 64}, {512, 64}, {2048, 64}, {512, 128}}) {
    add(f32, DType::f32, time, dim);
    add(pairs, DType::bf16, time, dim);
  }
}

}  // namespace mudd::bench
