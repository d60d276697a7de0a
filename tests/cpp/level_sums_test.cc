// Kernels that sum over a row, and optimizers, give equal bits at every level of this CPU (contracts 24).
#include "level_rows.h"
#include "mudd/kernels/reduce/reduce.h"
#include "mudd/ops/cross_entropy/cross_entropy.h"
#include "mudd/ops/depth_mix/depth_mix.h"
#include "mudd/ops/grouped_gemm/grouped_gemm.h"
#include "mudd/ops/layer_norm/layer_norm.h"
#include "mudd/ops/moe_route/moe_route.h"
#include "mudd/ops/pattention/pattention.h"
#include "mudd/ops/rms_norm/rms_norm.h"
#include "mudd/optim/update.h"

using namespace mudd;
using namespace mudd::test;

namespace {

// Widths around the borders of vectors and groups of four of them, and longer ones.
int64_t width_of(Draw& draw) { return draw.coin() ? draw.between(1, 140) : draw.between(141, 900); }

Floats plane(int64_t n) { return Floats(static_cast<size_t>(n)); }

Floats as_floats(double x) {
  Floats halves(2);
  std::memcpy(halves.data(), &x, sizeof x);
  return halves;
}

}  // namespace

TEST_CASE("rms_norm") {
  check_levels(rms_norm_rows(), [](const RmsNormKernels& k, Draw& draw) {
    const int64_t rows = draw.between(1, 4), d = width_of(draw), all = rows * d;
    const Floats x = draw.floats(all), gain = draw.floats(d), dy = draw.floats(all);
    Floats y = plane(all), inv = plane(rows), dx = draw.floats(all), dgain = plane(d);
    const float* g = draw.coin() ? gain.data() : nullptr;
    k.fwd(0, rows, 1, d, x.data(), d, g, 1e-6f, y.data(), d, inv.data());
    k.bwd(0, rows, 1, d, x.data(), d, g, inv.data(), dy.data(), d, dx.data(), d, draw.coin(), dgain.data());
    return joined({y, inv, dx, dgain});
  });
}

TEST_CASE("layer_norm") {
  check_levels(layer_norm_rows(), [](const LayerNormKernels& k, Draw& draw) {
    const int64_t rows = draw.between(1, 4), d = width_of(draw), all = rows * d;
    const Floats x = draw.floats(all), gain = draw.floats(d), bias = draw.floats(d), dy = draw.floats(all);
    Floats y = plane(all), stats = plane(2 * rows), dx = draw.floats(all), dgain = plane(d), dbias = plane(d);
    const LayerNormOptions options{1e-5f, draw.coin() ? 1.0f : 0.0f, draw.coin() ? 0.7f : 1.0f};
    k.fwd(0, rows, d, x.data(), d, gain.data(), bias.data(), options, y.data(), d, stats.data());
    k.bwd(0, rows, d, x.data(), d, gain.data(), options, stats.data(), dy.data(), d, dx.data(), d, draw.coin(),
          dgain.data(), dbias.data());
    return joined({y, stats, dx, dgain, dbias});
  });
}

TEST_CASE("cross_entropy") {
  check_levels(cross_entropy_rows(), [](const CrossEntropyKernels& k, Draw& draw) {
    const int64_t rows = draw.between(1, 3), n = draw.coin() ? width_of(draw) : draw.between(1900, 4200);
    Floats logits = draw.floats(rows * n);
    for (float& z : logits) z *= 8;
    std::vector<int32_t> targets;
    for (int64_t r = 0; r < rows; ++r) targets.push_back(static_cast<int32_t>(draw.between(0, n - 1)));
    std::vector<RowSoftmax> stats(static_cast<size_t>(rows)), again = stats;
    k.fwd(rows, n, logits.data(), n, targets.data(), stats.data());
    k.bwd(rows, n, logits.data(), n, targets.data(), 0.3f, again.data());
    Floats all = logits;
    for (const auto* list : {&stats, &again})
      for (const RowSoftmax& s : *list)
        all = joined({all, as_floats(s.sum), {s.max, s.target, s.guessed ? 1.0f : 0.0f}});
    return all;
  });
}

TEST_CASE("depth_mix") {
  check_levels(depth_mix_rows(), [](const DepthMixKernels& k, Draw& draw) {
    const int64_t rows = draw.between(1, 3), d = width_of(draw), all = rows * d;
    DepthMixRows m;
    m.width = d, m.streams = static_cast<int>(draw.between(1, 4)),
    m.sources = static_cast<int>(draw.between(1, 7));
    m.normed = static_cast<int>(draw.between(0, m.streams)), m.post_norm = m.normed == m.streams && draw.coin();
    const size_t sources = static_cast<size_t>(m.sources);
    const Floats states = draw.floats(m.sources * all), gains = draw.floats(d), direct = draw.floats(all);
    const Floats weights = draw.floats(rows * m.streams * m.sources), dy = draw.floats(m.streams * all);
    Floats y = plane(m.streams * all), inverse = plane(rows * m.normed), scratch = plane(m.streams * d);
    Floats dstates = draw.floats(m.sources * all), dweights = plane(rows * m.streams * m.sources);
    Floats ddirect = draw.floats(all), dgains = plane(m.streams * d);
    std::vector<const float*> from(sources);
    std::vector<float*> to(sources);
    const std::vector<int64_t> strides(sources, d);
    std::vector<uint8_t> accumulate(sources);
    for (size_t j = 0; j < sources; ++j) {
      const int64_t at = static_cast<int64_t>(j) * all;
      from[j] = states.data() + at, to[j] = draw.coin() ? dstates.data() + at : nullptr,
      accumulate[j] = draw.coin();
    }
    m.states = from.data(), m.state_strides = strides.data(), m.weights = weights.data(), m.eps = 1e-6f;
    m.weight_stride = m.streams * m.sources, m.inverse = inverse.data();
    m.direct = draw.coin() ? direct.data() : nullptr, m.direct_stride = d;
    DepthMixOutputs out;
    DepthMixGradients g;
    for (int c = 0; c < m.streams; ++c) {
      out.streams[c] = y.data() + c * all, out.strides[c] = d, g.streams[c] = dy.data() + c * all,
      g.strides[c] = d;
      if (c < m.normed) m.gains[c] = gains.data(), g.gains[c] = dgains.data() + c * d;
    }
    g.states = to.data(), g.state_strides = strides.data(), g.accumulate = accumulate.data();
    g.weights = dweights.data(), g.direct = m.direct ? ddirect.data() : nullptr, g.direct_stride = d;
    k.fwd(0, rows, m, out);
    k.bwd(0, rows, m, g, scratch.data());
    Floats hidden = plane(all), dscaled = plane(all), dh = draw.floats(all);
    k.generator(0, rows, d, Activation::gelu_erf, states.data(), weights.data(), dh.data(), hidden.data(),
                dscaled.data());
    return joined({y, inverse, dstates, dweights, ddirect, dgains, hidden, dscaled, dh});
  });
}

TEST_CASE("pattention") {
  check_levels(pattention_rows(), [](const PattentionKernels& k, Draw& draw) {
    const int64_t rows = draw.between(1, 3), n = width_of(draw), all = rows * n;
    Theta theta;
    theta.norm = static_cast<SlotNorm>(draw.between(0, 5)), theta.tau = 5.0f, theta.eps = draw.coin() ? 1e-6f : 0;
    theta.gelu = draw.coin() ? Activation::gelu_erf : Activation::gelu_tanh;
    const Floats a = draw.floats(all), factors = draw.floats(rows), bias = draw.floats(n);
    Floats s = plane(all), stats = plane(2 * rows), ds = draw.floats(all), again = plane(all), sum = plane(n);
    const float* f = draw.coin() ? factors.data() : nullptr;
    k.fwd(rows, n, theta, a.data(), n, f, s.data(), n, stats.data());
    k.bwd(rows, n, theta, a.data(), n, f, stats.data(), ds.data(), n, again.data(), n);
    Floats y = s;
    k.add_bias(rows, n, bias.data(), f, y.data(), n);
    k.sum_rows(rows, n, a.data(), n, f, sum.data());
    return joined({s, stats, ds, again, y, sum});
  });
}

TEST_CASE("moe_route") {
  check_levels(moe_route_rows(), [](const MoeRouteKernels& k, Draw& draw) {
    const int64_t rows = draw.between(1, 4), experts = draw.between(1, 80);
    Floats z = draw.floats(rows * experts), dz = draw.floats(experts);
    const Floats slopes = draw.floats(experts);
    std::vector<RouteRow> stats(static_cast<size_t>(rows));
    k.softmax(rows, experts, z.data(), stats.data());
    k.balance(experts, z.data(), slopes.data(), 0.4f, dz.data());
    Floats all = joined({z, dz});
    for (const RouteRow& s : stats) all = joined({all, {s.max, s.sum, s.mean}});
    return all;
  });
}

TEST_CASE("grouped_gemm") {
  check_levels(grouped_gemm_rows(), [](const GroupedGemmKernels& k, Draw& draw) {
    const int64_t rows = draw.between(1, 3), width = width_of(draw), all = rows * width;
    Floats gate = draw.floats(all), up = draw.floats(all), inner = draw.floats(all), dscale = plane(rows);
    const Floats scale = draw.floats(rows);
    k.bwd(rows, width, static_cast<Activation>(draw.between(0, 5)),
          {gate.data(), up.data(), inner.data(), scale.data(), dscale.data()});
    Floats out = plane(width);
    const float* both[] = {gate.data(), up.data()};
    k.combine(width, inner.data(), both, 2, out.data());
    return joined({gate, up, inner, dscale, out});
  });
}

TEST_CASE("reduce") {
  check_levels(reduce_rows(), [](const ReduceKernels& k, Draw& draw) {
    const int64_t n = draw.coin() ? width_of(draw) : draw.between(4000, 4096);
    const Floats a = draw.floats(n), b = draw.floats(n), c = draw.floats(n);
    const float* planes[] = {a.data(), b.data(), c.data()};
    Floats sum = plane(n);
    k.sum(n, planes, 3, sum.data());
    return joined({{k.squares(n, planes, 1), k.squares(n, planes, 3), k.finite(n, a.data()) ? 1.0f : 0.0f}, sum});
  });
}

TEST_CASE("optimizers") {
  for (const OptimizerSpec* spec : optimizer_specs()) {
    if (spec->rows.empty()) continue;  // muon has no separate kernel
    check_levels(spec->rows, [&](const UpdateKernels& k, Draw& draw) {
      const std::unique_ptr<Optimizer> optimizer = spec->make(OptimizerSettings(*spec));
      UpdateParameter parameter;
      parameter.lr = 1e-3, parameter.decay = 1e-4;
      const UpdateFactors factors = static_cast<const Elementwise&>(*optimizer).factors(parameter, 3, 1);
      const int64_t n = width_of(draw);
      Floats w = draw.floats(n), m = draw.floats(n), v = draw.positive(n), passed;
      const Floats g = draw.floats(n);
      const float* grads[] = {g.data()};
      std::vector<bf16> narrow(static_cast<size_t>(n));
      passed.push_back(k.update(n, w.data(), m.data(), v.data(), grads, 1, factors));
      passed.push_back(k.update_bf16(n, w.data(), narrow.data(), v.data(), grads, 1, factors));
      for (const bf16 x : narrow) passed.push_back(x.bits);
      return joined({w, m, v, passed});
    });
  }
}
