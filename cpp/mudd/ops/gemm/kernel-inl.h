// Loops around the register tile: blocks of A copied beside each other (no power-of-two strides, one page),
// a panel of B in L1 while the tiles of A walk past it, partial sums over k in a compact buffer.
#include "mudd/base/simd/activations.h"
#include "mudd/base/simd/rows.h"
#include "mudd/ops/gemm/gemm.h"
#include "mudd/ops/gemm/pack-inl.h"

namespace mudd::MUDD_ISA {
namespace {

constexpr int64_t kMc = 96, kNc = 256, kKc = 256;  // rows, columns, depth of a cache block
constexpr int64_t kLeftStride = kKc + 16;
static_assert(kMc % kMr == 0 && kNc % kNr == 0);

constexpr MicroTable<kLeftStride, 1> kByRows;
constexpr MicroTable<1, kMr> kByColumns;

inline int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

// Calls body(row, column, lanes) over the vectors of a tile.
template <class Body>
inline void over_tile(int rows, int cols, Body body) {
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < cols; j += kLanes) body(r, j, cols - j < kLanes ? cols - j : kLanes);
}

// c = activation(tile + bias) + residual at rows r0.., columns j0.. of the block.
void finish_tile(const GemmBlock& g, const float* tile, int64_t r0, int64_t j0, int rows, int cols) {
  const Epilogue& e = g.epilogue;
  with_activation(e.activation, [&](auto tag) {
    over_tile(rows, cols, [&](int r, int j, int n) {
      Vec v = Vec::load(tile + r * kNr + j);
      if (e.bias) v = v + load(e.bias + j0 + j, n);
      if (e.pre_activation) store(e.pre_activation + (r0 + r) * e.pre_stride + j0 + j, v, n);
      v = activate<decltype(tag)::kind>(v);
      if (e.residual) v = v + load(e.residual + (r0 + r) * e.residual_stride + j0 + j, n);
      store(g.c + (r0 + r) * g.ldc + j0 + j, v, n);
    });
  });
}

bool has_epilogue(const Epilogue& e) {
  return e.bias || e.residual || e.pre_activation || e.activation != Activation::none;
}

// Rows [r0, r0 + m), columns [j0, j0 + n) of the block, m <= kMc, n <= kNc.
void cache_block(const GemmBlock& g, int64_t r0, int64_t j0, int64_t m, int64_t n) {
  alignas(64) float left[kMc * kLeftStride], partial[kMc * kNc], tile[kMr * kNr];
  const bool plain = !has_epilogue(g.epilogue);
  int64_t k0 = 0;
  do {  // at least once: k = 0 still has an epilogue
    const int64_t kc = at_most(kKc, g.k - k0);
    const bool first = k0 == 0, last = k0 + kc == g.k;
    for (int64_t r = 0; r < m; ++r)
      __builtin_memcpy(left + r * kLeftStride, g.a + (r0 + r) * g.lda + k0,
                       static_cast<size_t>(kc) * sizeof(float));
    for (int64_t j = 0; j < n; j += kNr) {
      const float* b = g.b + (j0 + j) * g.k + k0 * kNr;
      const int cols = static_cast<int>(at_most(kNr, n - j));
      for (int64_t r = 0; r < m; r += kMr) {
        const int rows = static_cast<int>(at_most(kMr, m - r));
        float* c = g.c + (r0 + r) * g.ldc + j0 + j;
        const float* start = first ? nullptr : partial + r * kNc + j;
        int64_t start_stride = kNc;
        if (first && g.accumulate) {
          start = c;
          start_stride = g.ldc;
          if (cols < kNr) {
            over_tile(rows, cols,
                      [&](int i, int v, int l) { load(c + i * g.ldc + v, l).store(tile + i * kNr + v); });
            start = tile;
            start_stride = kNr;
          }
        }
        const bool direct = last && plain && cols == kNr;
        float* to = direct ? c : last ? tile : partial + r * kNc + j;
        const int64_t to_stride = direct ? g.ldc : last ? kNr : kNc;
        kByRows.of[rows - 1](kc, left + r * kLeftStride, b, start, start_stride, to, to_stride);
        if (last && !direct) finish_tile(g, tile, r0 + r, j0 + j, rows, cols);
      }
    }
    k0 += kc;
  } while (k0 < g.k);
}

// m = 1: panels stream past the row at memory speed.
void one_row(const GemmBlock& g) {
  constexpr int64_t kPanels = 4;
  alignas(64) float tile[kPanels * kNr];
  for (int64_t j = 0; j < g.n; j += kPanels * kNr) {
    const int64_t cols = at_most(kPanels * kNr, g.n - j);
    if (g.accumulate)
      for (int64_t v = 0; v < cols; ++v) tile[v] = g.c[j + v];
    const float *b = g.b + j * g.k, *start = g.accumulate ? tile : nullptr;
    if (cols > (kPanels - 1) * kNr) {
      vector_panels(std::make_index_sequence<kPanels>(), g.k, g.a, b, g.k * kNr, start, tile);
    } else {
      for (int64_t p = 0; p * kNr < cols; ++p)
        vector_panels(std::make_index_sequence<1>(), g.k, g.a, b + p * kNr * g.k, 0,
                      start ? start + p * kNr : nullptr, tile + p * kNr);
    }
    finish_tile(g, tile, 0, j, 1, static_cast<int>(cols));
  }
}

void multiply(const GemmBlock& g) {
  if (g.m == 1) return one_row(g);
  for (int64_t j = 0; j < g.n; j += kNc)
    for (int64_t r = 0; r < g.m; r += kMc) cache_block(g, r, j, at_most(kMc, g.m - r), at_most(kNc, g.n - j));
}

constexpr int64_t kGradM = 48, kGradN = 128;  // block of dW whose partial sums stay in cache
constexpr int kMaxLevels = 11;                // of the tree over kMaxShards, and the last shard's own
static_assert(kGradM % kMr == 0 && kGradN % kNr == 0 && kMaxShards <= 1 << (kMaxLevels - 1));

// Subtrees that wait for their right-hand partners: level t holds a sum over 2^t shards.
using Levels = float[kMaxLevels][kGradM * kGradN];

// The shard's product is in `tile`: adds the finished subtrees to its left, low levels first; the last shard
// also the adds, and goes out; others wait at `level`.
void finish_gradient(const GradBlock& g, Levels& levels, int shard, int level, const float* tile, int64_t r0,
                     int64_t j0, int64_t r, int64_t j, int rows, int cols) {
  const bool last = shard == g.shards - 1;
  over_tile(rows, last ? cols : kNr, [&](int i, int v, int n) {
    Vec sum = Vec::load(tile + i * kNr + v);
    const int64_t at = (r + i) * kGradN + j + v, out_at = (r0 + r + i) * g.ldo + j0 + j + v;
    for (int t = 0; last ? shard >> t != 0 : t < level; ++t)
      if (shard >> t & 1) sum = Vec::load(levels[t] + at) + sum;
    if (!last) return sum.store(levels[level] + at);
    for (int a = 0; a < g.n_add; ++a) sum = load(g.add[a] + out_at, n) + sum;
    store(g.out + out_at, sum, n);
  });
}

void gradient_block(const GradBlock& g, const PackedGrad& packed, int64_t r0, int64_t j0, int64_t m, int64_t n) {
  alignas(64) Levels levels;
  alignas(64) float tile[kMr * kNr];
  const int64_t all_rows = g.cuts[g.shards], tile_step = left_tile(all_rows);
  for (int s = 0; s < g.shards; ++s) {
    const bool last_shard = s == g.shards - 1;
    const int level = last_shard ? kMaxLevels - 1 : __builtin_ctz(~static_cast<unsigned>(s));
    int64_t row = g.cuts[s];
    do {  // an empty shard counts as zeros
      const int64_t kc = at_most(kKc, g.cuts[s + 1] - row);
      const bool first = row == g.cuts[s], last = row + kc == g.cuts[s + 1];
      for (int64_t j = 0; j < n; j += kNr) {
        const float* b = packed.right + (j0 + j) * all_rows + row * kNr;
        for (int64_t r = 0; r < m; r += kMr) {
          const float* a = packed.left + (r0 + r) / kMr * tile_step + row * kMr;
          const int rows = static_cast<int>(at_most(kMr, m - r));
          float* own = levels[level] + r * kGradN + j;
          if (first && g.start)
            over_tile(rows, kNr, [&](int i, int v, int) {
              const int64_t left = n - j - v;
              const int lanes = static_cast<int>(left < 0 ? 0 : at_most(kLanes, left));
              load(g.start + (r0 + r + i) * g.ldo + j0 + j + v, lanes).store(own + i * kGradN + v);
            });
          const bool direct = !last || (level == 0 && !last_shard);
          kByColumns.of[rows - 1](kc, a, b, first && !g.start ? nullptr : own, kGradN, direct ? own : tile,
                                  direct ? kGradN : kNr);
          if (!direct)
            finish_gradient(g, levels, s, level, tile, r0, j0, r, j, rows, static_cast<int>(at_most(kNr, n - j)));
        }
      }
      row += kc;
    } while (row < g.cuts[s + 1]);
  }
}

void packed_gradient(const GradBlock& g, const PackedGrad& packed) {
  for (int64_t j = 0; j < g.n; j += kGradN)
    for (int64_t r = 0; r < g.m; r += kGradM)
      gradient_block(g, packed, r, j, at_most(kGradM, g.m - r), at_most(kGradN, g.n - j));
}

int64_t left_size(int64_t m, int64_t rows) { return (m + kMr - 1) / kMr * left_tile(rows); }

int64_t grad_scratch(int64_t m, int64_t n, int64_t rows) {
  return left_size(m, rows) + (n + kNr - 1) / kNr * kNr * rows;
}

void weight_gradient(const GradBlock& g) {
  const int64_t rows = g.cuts[g.shards];
  float *left = g.scratch, *right = left + left_size(g.m, rows);
  pack_left(g.x, g.ldx, rows, g.m, 0, (g.m + kMr - 1) / kMr, left);
  pack(g.dy, g.ldy, rows, g.n, 0, (g.n + kNr - 1) / kNr, right);
  packed_gradient(g, {left, right});
}

}  // namespace

const GemmKernels gemm_f32 = {
    kMr,       kNr,       pack,           pack_transposed, multiply, grad_scratch, weight_gradient,
    left_tile, pack_left, packed_gradient};

}  // namespace mudd::MUDD_ISA
