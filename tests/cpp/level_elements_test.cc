// Elementwise kernels, and kernels that sum over rows, have equal bits at every level of this CPU.
#include <algorithm>
#include <bit>

#include "level_rows.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/kernels/table_gradient/table_gradient.h"
#include "mudd/ops/activation/activation.h"
#include "mudd/ops/add/add.h"
#include "mudd/ops/dropout/dropout.h"
#include "mudd/ops/embedding/embedding.h"
#include "mudd/ops/glu/glu.h"
#include "mudd/ops/linear/linear.h"
#include "mudd/ops/ngram_rows/ngram_rows.h"
#include "mudd/ops/rope/rope.h"

using namespace mudd;
using namespace mudd::test;

namespace {

Floats plane(int64_t n) { return Floats(static_cast<size_t>(n)); }

Activation activation_of(Draw& draw) { return static_cast<Activation>(draw.between(0, 5)); }

// Return an operand of a matmul, by kind: full floats mixed with values of one and of thirteen bits (ties),
// tiny ones (underflow of products and sums), large ones (overflow of sums) and, in the last kind, infinities
// and NaN.
Floats operand(Draw& draw, int64_t kind, int64_t n) {
  Floats x = draw.floats(n);
  const float scale = std::ldexp(1.0f, static_cast<int>(draw.between(58, 68)));
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t turn = draw.between(0, 29);
    const uint32_t bits = std::bit_cast<uint32_t>(x[i]);
    if (kind == 1 && turn == 0) x[i] = std::copysign(0.5f, x[i]);
    if (kind == 1 && turn > 20) x[i] = std::bit_cast<float>((bits & ~0xfffu) | 0x800u);
    if (kind == 2) x[i] /= scale;
    if (kind == 3) x[i] *= scale;
    if (kind == 4 && turn == 0) x[i] = std::copysign(3e38f, x[i]);
    if (kind == 5 && turn < 2) x[i] = turn == 0 ? std::copysign(INFINITY, x[i]) : NAN;
  }
  return x;
}

}  // namespace

TEST_CASE("matmuls") {
  const auto run = [](const GemmKernels& kernels, Draw& draw) {
    const int64_t m = draw.between(1, 9), n = draw.between(1, 40), k = draw.between(1, 300);
    const int64_t kind = draw.between(0, 6);
    Floats a = operand(draw, kind, m * k), b = operand(draw, kind, k * n), c = operand(draw, kind, m * n);
    const Floats x = operand(draw, kind, k * m);
    Floats dw = plane(m * n);
    if (kind == 6) {  // c + a b is 2^-70 below the middle between two floats
      std::ranges::fill(a, 1 - 0x1p-23f), std::ranges::fill(b, 0x1p-24f + 0x1p-47f);
      std::ranges::fill(c, 1 + 0x1p-23f);
    }
    const int64_t panels = (n + kernels.nr - 1) / kernels.nr, cuts[] = {0, k / 3, k};
    Floats packed = plane(kernels.panel_bytes(k, panels * kernels.nr) / 4);
    Floats scratch = plane(kernels.grad_scratch(m, n, 2));
    kernels.pack(b.data(), n, k, n, 0, panels, packed.data());
    kernels.multiply({.a = a.data(),
                      .lda = k,
                      .b = packed.data(),
                      .c = c.data(),
                      .ldc = n,
                      .m = m,
                      .n = n,
                      .k = k,
                      .accumulate = draw.coin(),
                      .epilogue = {}});
    kernels.weight_gradient({.x = x.data(),
                             .ldx = m,
                             .dy = b.data(),
                             .ldy = n,
                             .cuts = cuts,
                             .shards = 2,
                             .m = m,
                             .n = n,
                             .out = dw.data(),
                             .ldo = n,
                             .scratch = scratch.data()});
    return joined({c, dw});
  };
  check_levels(gemm_rows(), run, 400);
}

TEST_CASE("activation") {
  check_levels(activation_rows(), [](const ActivationKernels& k, Draw& draw) {
    const int64_t n = draw.between(1, 300);
    Floats x = draw.floats(n), y = plane(n), py = y, dx = draw.floats(n), pdx = y;
    const Floats dy = draw.floats(n);
    for (float& v : x) v *= 6;
    const Activation kind = activation_of(draw);
    const Pointwise other = static_cast<Pointwise>(draw.between(0, std::size(kPointwiseNames) - 1));
    k.fwd(0, 1, n, kind, x.data(), n, y.data(), n);
    k.bwd(0, 1, n, kind, x.data(), n, dy.data(), n, dx.data(), n, draw.coin());
    k.pointwise_fwd(0, 1, n, other, x.data(), n, py.data(), n);
    k.pointwise_bwd(0, 1, n, other, x.data(), n, dy.data(), n, pdx.data(), n, false);
    return joined({y, dx, py, pdx});
  });
}

TEST_CASE("glu and add") {
  check_levels(glu_rows(), [](const GluKernels& k, Draw& draw) {
    const int64_t n = draw.between(1, 300);
    const Floats gate = draw.floats(n), up = draw.floats(n), dy = draw.floats(n);
    Floats y = plane(n), dgate = draw.floats(n), dup = draw.floats(n);
    const Activation kind = activation_of(draw);
    k.fwd(0, 1, n, kind, gate.data(), n, up.data(), n, y.data(), n);
    k.bwd(0, 1, n, kind, gate.data(), n, up.data(), n, dy.data(), n, {dgate.data(), n, draw.coin()},
          {dup.data(), n, false});
    return joined({y, dgate, dup});
  });
  check_levels(add_rows(), [](const AddKernels& k, Draw& draw) {
    const int64_t n = draw.between(1, 300);
    const Floats a = draw.floats(n), b = draw.floats(n);
    Floats y = plane(n);
    k.add(0, 1, n, a.data(), n, b.data(), n, y.data(), n);
    return y;
  });
}

TEST_CASE("linear") {
  check_levels(linear_rows(), [](const LinearKernels& k, Draw& draw) {
    const int64_t rows = draw.between(1, 5), n = draw.between(1, 200), all = rows * n;
    const Floats pre = draw.floats(all), dy = draw.floats(all);
    Floats dpre = plane(all), dbias = plane(n), y = plane(all), slope = plane(all);
    const Activation kind = static_cast<Activation>(draw.between(1, 5));
    k.bwd(0, rows, n, kind, pre.data(), draw.coin(), dy.data(), n, dpre.data(), dbias.data());
    k.remake(all, kind, pre.data(), y.data(), slope.data());
    return joined({dpre, dbias, y, slope});
  });
}

TEST_CASE("rope") {
  check_levels(rope_rows(), [](const RopeKernels& k, Draw& draw) {
    RopeBlock b;
    b.end = b.time = draw.between(1, 6), b.heads = draw.between(1, 3), b.pairs = draw.between(1, 40);
    b.dim = 2 * b.pairs + draw.between(0, 9), b.negative = draw.coin(), b.accumulate = draw.coin();
    b.x_head = b.y_head = b.dim, b.x_row = b.y_row = b.heads * b.dim;
    Floats table = plane(b.end * 2 * b.pairs), y = draw.floats(b.end * b.x_row);
    const Floats x = draw.floats(b.end * b.x_row);
    rope_table(b.end, b.pairs, {}, table.data());
    b.table = table.data(), b.x = x.data(), b.y = y.data();
    k.rotate(b);
    return joined({table, y});
  });
}

TEST_CASE("dropout") {
  check_levels(dropout_rows(), [](const DropoutKernels& k, Draw& draw) {
    DropoutRows a;
    a.end = draw.between(1, 5), a.time = draw.between(1, 3), a.cols = draw.between(1, 200);
    const Floats x = draw.floats(a.end * a.cols), base = draw.floats(a.end * a.cols);
    Floats y = plane(a.end * a.cols);
    a.x = x.data(), a.base = draw.coin() ? base.data() : nullptr, a.y = y.data();
    a.x_stride = a.base_stride = a.y_stride = a.cols;
    k.apply(Dropout(0.3, 7, "place", 5, 2), a);
    return y;
  });
}

TEST_CASE("embedding") {
  check_levels(embedding_rows(), [](const EmbeddingKernels& k, Draw& draw) {
    const int64_t d = draw.between(1, 300), rows = 9;
    const Floats table = draw.floats(5 * d), residual = draw.floats(rows * d);
    const int32_t ids[] = {4, 0, 0, 3, 3, 3, 1, 3, 0};
    Floats y = plane(rows * d);
    const float scale = draw.coin() ? 1.0f : 5.7f;
    k.fwd(0, rows, d, ids, table.data(), d, scale, draw.coin() ? residual.data() : nullptr, d, y.data(), d);
    return y;
  });
}

TEST_CASE("ngram rows") {
  check_levels(ngram_rows_rows(), [](const NgramRowsKernels& k, Draw& draw) {
    const int64_t d = draw.between(1, 300), orders = draw.between(1, 3), rows = 3;
    const Floats table = draw.floats(5 * d);
    const int32_t ids[] = {4, 0, 0, 3, 3, 3, 1, 3, 0};
    const float signs[] = {1, -1, -1, 1, 1, -1, 1, -1, 1};
    Floats y = plane(rows * d);
    k.fwd(0, rows, d, orders, ids, signs, table.data(), d, y.data(), d);
    return y;
  });
}

TEST_CASE("table gradient") {
  check_levels(table_gradient_rows(), [](const TableGradientKernels& k, Draw& draw) {
    const int64_t d = draw.between(1, kTableColumns), rows = 9;
    const Floats dy = draw.floats(rows * d);
    const int32_t order[] = {1, 2, 8, 6, 3, 4, 5, 7, 0};
    const int32_t found[] = {0, 1, 3, 4}, begin[] = {0, 3, 4, 8, 9};
    const int64_t cuts[] = {0, 4, 7, 9};
    const float signs[] = {1, -1, -1, 1, 1, -1, 1, -1, 1};
    Floats out = plane(5 * d);
    TableGradient g;
    g.dy = dy.data(), g.dy_stride = d, g.order = order, g.cuts = cuts, g.shards = 3;
    g.signs = draw.coin() ? signs : nullptr;
    g.found = found, g.begin = begin, g.n_found = 4;
    g.width = d, g.out = out.data(), g.scale = draw.coin() ? 1.0f : 5.7f;
    k.write(g, 0, 5, 0);
    return out;
  });
}

TEST_CASE("convert") {
  check_levels(convert_rows(), [](const ConvertKernels& k, Draw& draw) {
    const int64_t n = draw.between(1, 300);
    const size_t size = static_cast<size_t>(n);
    const Floats x = draw.floats(n);
    std::vector<bf16> narrow(size);
    std::vector<f16> half(size);
    Floats wide = plane(n), from_half = plane(n), rounded = plane(n);
    k.narrow(n, x.data(), narrow.data());
    k.widen(n, narrow.data(), wide.data());
    k.narrow_half(n, x.data(), half.data());
    k.widen_half(n, half.data(), from_half.data());
    k.round(n, x.data(), rounded.data());
    const auto offset = static_cast<int32_t>(draw.between(0, 65535));
    Floats cut = plane(n), wide_cut = plane(n);
    k.cut(n, x.data(), offset, cut.data());
    k.cut_narrow(n, x.data(), offset, narrow.data());
    k.widen(n, narrow.data(), wide_cut.data());
    return joined({wide, from_half, rounded, cut, wide_cut});
  });
}
