// Rows of attention: one key/value head of one sample, q, k and v slices of one slab. FLOPs count what causal
// attention needs (T^2 hd per product): two products forward, four backward; the score product that backward
// repeats is not counted.
#include "mudd/ops/attention/attention.h"
#include "rows.h"

namespace mudd::bench {
namespace {

constexpr int64_t kHeads = 8;  // of the slab: the stride between positions is 3 * 8 * hd

struct Case {
  int64_t time, dim;
  std::vector<float> slab, out, dout, dslab, lse, delta, scratch;
  AttentionSlice slice;
  AttentionGrad grad;

  Case(const AttentionKernels& kernels, int64_t t, int64_t hd) : time(t), dim(hd) {
    const int64_t width = kHeads * hd;
    slab = filled(t * 3 * width), dslab = slab, out = filled(t * width), dout = out;
    for (float& x : slab) x *= 4.0f;
    lse.resize(static_cast<size_t>(t)), delta.resize(static_cast<size_t>(t));
    scratch.resize(static_cast<size_t>(std::max(kernels.fwd_scratch(hd), kernels.bwd_scratch(hd))));
    slice.dim = hd, slice.queries = slice.keys = t, slice.scale = 0.125f;
    slice.q = slab.data(), slice.k = slice.q + width, slice.v = slice.k + width;
    slice.q_row = slice.k_row = slice.v_row = 3 * width;
    slice.o = out.data(), slice.o_row = width, slice.lse = lse.data();
    grad.key_end = grad.query_end = t;
    grad.dout = dout.data(), grad.do_row = width, grad.delta = delta.data();
    grad.dq = dslab.data(), grad.dk = grad.dq + width, grad.dv = grad.dk + width;
    grad.dq_row = grad.dk_row = grad.dv_row = 3 * width;
  }
};

void forward(Case& c, const AttentionKernels& kernels) {
  for (int64_t t = 0; t < c.time; t += kernels.query_tile)
    kernels.fwd(c.slice, {0, 1, t, std::min(t + kernels.query_tile, c.time)}, c.scratch.data());
}

void forward_row(benchmark::State& state, const AttentionKernels* kernels, int64_t time, int64_t dim,
                 double peak) {
  Case c(*kernels, time, dim);
  for (auto _ : state) forward(c, *kernels);
  count_flops(state, 2.0 * static_cast<double>(time * time * dim), peak);
}

void backward_row(benchmark::State& state, const AttentionKernels* kernels, int64_t time, int64_t dim,
                  double peak) {
  Case c(*kernels, time, dim);
  forward(c, *kernels);
  for (auto _ : state) {
    kernels->delta(c.slice, c.grad, 0, time, c.delta.data());
    kernels->bwd(c.slice, c.grad, c.scratch.data());
  }
  count_flops(state, 4.0 * static_cast<double>(time * time * dim), peak);
}

}  // namespace

void register_attention() {
  for (const auto& row : attention_rows()) {
    if (!row.runs_here() || row.emulated()) continue;
    const double peak = level_peak(row.level);
    for (const auto& [time, dim] : {std::pair<int64_t, int64_t>{256, 64}, {512, 64}, {2048, 64}, {512, 128}}) {
      const std::string shape = std::to_string(time) + "x" + std::to_string(dim);
      const std::string name = std::string(row.name) + "." + row.level;
      benchmark::RegisterBenchmark((name + "/forward/" + shape).c_str(), forward_row, row.kernels, time, dim,
                                   peak);
      benchmark::RegisterBenchmark((name + "/backward/" + shape).c_str(), backward_row, row.kernels, time, dim,
                                   peak);
    }
  }
}

}  // namespace mudd::bench
