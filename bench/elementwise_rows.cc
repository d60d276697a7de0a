// Rows of the tables that read each element once: activations, sums, rotations, conversions, lookups, gated units.
#include <algorithm>
#include <numeric>

#include "mudd/kernels/convert/convert.h"
#include "mudd/kernels/reduce/reduce.h"
#include "mudd/kernels/table_gradient/table_gradient.h"
#include "mudd/ops/activation/activation.h"
#include "mudd/ops/add/add.h"
#include "mudd/ops/dropout/dropout.h"
#include "mudd/ops/embedding/embedding.h"
#include "mudd/ops/glu/glu.h"
#include "mudd/ops/grouped_gemm/grouped_gemm.h"
#include "mudd/ops/linear/linear.h"
#include "mudd/ops/ngram_rows/ngram_rows.h"
#include "mudd/ops/rope/rope.h"
#include "rows.h"

namespace mudd::bench {
namespace {

constexpr int64_t kRows = 48, kCols = 512, kAll = kRows * kCols;  // 96 KiB an operand
constexpr auto kSilu = Activation::silu;

// Memory of `count` operands of kAll elements.
constexpr Work moves(double operands) { return {.bytes = 4 * operands * kAll}; }

void add_activations() {
  register_rows(activation_rows(), "forward", moves(2), [](const ActivationKernels& k) {
    return [&k, x = filled(kAll), y = Floats(kAll)]() mutable {
      k.fwd(0, kRows, kCols, kSilu, x.data(), kCols, y.data(), kCols);
    };
  });
  register_rows(activation_rows(), "backward", moves(3), [](const ActivationKernels& k) {
    return [&k, x = filled(kAll), dy = filled(kAll), dx = Floats(kAll)]() mutable {
      k.bwd(0, kRows, kCols, kSilu, x.data(), kCols, dy.data(), kCols, dx.data(), kCols, false);
    };
  });
  register_rows(glu_rows(), "forward", moves(3), [](const GluKernels& k) {
    return [&k, gate = filled(kAll), up = filled(kAll), y = Floats(kAll)]() mutable {
      k.fwd(0, kRows, kCols, kSilu, gate.data(), kCols, up.data(), kCols, y.data(), kCols);
    };
  });
  register_rows(glu_rows(), "backward", moves(5), [](const GluKernels& k) {
    return [&k, gate = filled(kAll), up = filled(kAll), dy = filled(kAll), dgate = Floats(kAll),
            dup = Floats(kAll)]() mutable {
      k.bwd(0, kRows, kCols, kSilu, gate.data(), kCols, up.data(), kCols, dy.data(), kCols,
            {dgate.data(), kCols, false}, {dup.data(), kCols, false});
    };
  });
  register_rows(linear_rows(), "backward", moves(3), [](const LinearKernels& k) {
    return [&k, pre = filled(kAll), dy = filled(kAll), dpre = Floats(kAll), dbias = Floats(kCols)]() mutable {
      k.bwd(0, kRows, kCols, kSilu, pre.data(), false, dy.data(), kCols, dpre.data(), dbias.data());
    };
  });
  register_rows(linear_rows(), "remake", moves(3), [](const LinearKernels& k) {
    return [&k, pre = filled(kAll), y = Floats(kAll), slope = Floats(kAll)]() mutable {
      k.remake(kAll, kSilu, pre.data(), y.data(), slope.data());
    };
  });
}

void add_expert_rows() {
  register_rows(grouped_gemm_rows(), "backward", moves(6), [](const GroupedGemmKernels& k) {
    return [&k, a = filled(kAll), b = filled(kAll), d = filled(kAll), gate = Floats(kAll), up = Floats(kAll),
            inner = Floats(kAll), scale = filled(kRows), dscale = Floats(kRows)]() mutable {
      std::ranges::copy(a, gate.begin()), std::ranges::copy(b, up.begin()), std::ranges::copy(d, inner.begin());
      k.bwd(kRows, kCols, kSilu, {gate.data(), up.data(), inner.data(), scale.data(), dscale.data()});
    };
  });
  register_rows(grouped_gemm_rows(), "combine", moves(4), [](const GroupedGemmKernels& k) {
    return [&k, base = filled(kAll), a = filled(kAll), b = filled(kAll), y = Floats(kAll)]() mutable {
      const float* rows[] = {a.data(), b.data()};
      k.combine(kAll, base.data(), rows, 2, y.data());
    };
  });
}

void add_lookups() {
  register_rows(embedding_rows(), "forward", moves(2), [](const EmbeddingKernels& k) {
    std::vector<int32_t> ids(kRows);
    for (int32_t r = 0; r < kRows; ++r) ids[static_cast<size_t>(r)] = r * 7 % kRows;
    return [&k, ids = std::move(ids), table = filled(kAll), y = Floats(kAll)]() mutable {
      k.fwd(0, kRows, kCols, ids.data(), table.data(), kCols, 1.0f, nullptr, 0, y.data(), kCols);
    };
  });
  register_rows(ngram_rows_rows(), "forward", moves(3), [](const NgramRowsKernels& k) {
    std::vector<int32_t> ids(2 * kRows);
    for (int32_t i = 0; i < 2 * kRows; ++i) ids[static_cast<size_t>(i)] = i * 7 % kRows;
    return
        [&k, ids = std::move(ids), signs = filled(2 * kRows), table = filled(kAll), y = Floats(kAll)]() mutable {
          k.fwd(0, kRows, kCols, 2, ids.data(), signs.data(), table.data(), kCols, y.data(), kCols);
        };
  });
  // Two rows of dy for every id, one in each shard.
  register_rows(table_gradient_rows(), "write", moves(1.5), [](const TableGradientKernels& k) {
    std::vector<int32_t> order(kRows), begin(kRows / 2 + 1), found(kRows / 2);
    std::iota(found.begin(), found.end(), 0);
    for (int32_t i = 0; i <= kRows / 2; ++i) begin[static_cast<size_t>(i)] = 2 * i;
    for (int32_t i = 0; i < kRows; ++i) order[static_cast<size_t>(i)] = i / 2 + i % 2 * (kRows / 2);
    return [&k, order = std::move(order), begin = std::move(begin), found = std::move(found), dy = filled(kAll),
            dtable = Floats(kAll / 2)]() mutable {
      const int64_t cuts[] = {0, kRows / 2, kRows};
      TableGradient g;
      g.dy = dy.data(), g.dy_stride = kCols, g.order = order.data(), g.begin = begin.data();
      g.found = found.data(), g.n_found = kRows / 2;
      g.cuts = cuts, g.shards = 2, g.width = kCols, g.out = dtable.data();
      for (int64_t column = 0; column < kCols; column += kTableColumns) k.write(g, 0, kRows / 2, column);
    };
  });
}

void add_conversions() {
  register_rows(convert_rows(), "widen", moves(1.5), [](const ConvertKernels& k) {
    return [&k, x = filled_bf16(kAll), y = Floats(kAll)]() mutable { k.widen(kAll, x.data(), y.data()); };
  });
  register_rows(convert_rows(), "narrow", moves(1.5), [](const ConvertKernels& k) {
    return [&k, x = filled(kAll), y = filled_bf16(kAll)]() mutable { k.narrow(kAll, x.data(), y.data()); };
  });
  register_rows(convert_rows(), "widen half", moves(1.5), [](const ConvertKernels& k) {
    return
        [&k, x = std::vector<f16>(kAll), y = Floats(kAll)]() mutable { k.widen_half(kAll, x.data(), y.data()); };
  });
  register_rows(convert_rows(), "narrow half", moves(1.5), [](const ConvertKernels& k) {
    return
        [&k, x = filled(kAll), y = std::vector<f16>(kAll)]() mutable { k.narrow_half(kAll, x.data(), y.data()); };
  });
  register_rows(convert_rows(), "round", moves(2), [](const ConvertKernels& k) {
    return [&k, x = filled(kAll), y = Floats(kAll)]() mutable { k.round(kAll, x.data(), y.data()); };
  });
  register_rows(reduce_rows(), "squares", moves(1), [](const ReduceKernels& k) {
    return [&k, x = filled(kAll)] {
      const float* planes[] = {x.data()};
      benchmark::DoNotOptimize(k.squares(kAll, planes, 1));
    };
  });
  register_rows(reduce_rows(), "finite", moves(1), [](const ReduceKernels& k) {
    return [&k, x = filled(kAll)] { benchmark::DoNotOptimize(k.finite(kAll, x.data())); };
  });
  register_rows(reduce_rows(), "sum", moves(3), [](const ReduceKernels& k) {
    return [&k, x = filled(kAll), y = filled(kAll)]() mutable {
      const float* planes[] = {x.data(), y.data()};
      k.sum(kAll, planes, 2, y.data());
    };
  });
}

void add_rotations() {
  register_rows(rope_rows(), "rotate", moves(2), [](const RopeKernels& k) {
    return [&k, x = filled(kAll), y = Floats(kAll), table = filled(kRows * 64)]() mutable {
      RopeBlock block;
      block.end = block.time = kRows, block.heads = kCols / 64, block.dim = 64, block.pairs = 32;
      block.table = table.data(), block.x = x.data(), block.y = y.data();
      block.x_row = block.y_row = kCols, block.x_head = block.y_head = 64;
      k.rotate(block);
    };
  });
}

}  // namespace

void add_elementwise() {
  register_rows(dropout_rows(), "forward", moves(2), [](const DropoutKernels& k) {
    return [&k, draws = Dropout(0.1, 1, "place", 2, 3), x = filled(kAll), y = Floats(kAll)]() mutable {
      k.apply(draws, {0, kRows, kCols, kRows, x.data(), kCols, nullptr, 0, y.data(), kCols});
    };
  });
  register_rows(mudd::add_rows(), "forward", moves(3), [](const AddKernels& k) {
    return [&k, a = filled(kAll), b = filled(kAll), y = Floats(kAll)]() mutable {
      k.add(0, kRows, kCols, a.data(), kCols, b.data(), kCols, y.data(), kCols);
    };
  });
  add_activations();
  add_expert_rows();
  add_lookups();
  add_conversions();
  add_rotations();
}

}  // namespace mudd::bench
