// Compiled once for each ISA level, with its Vec (base/simd/vec.h); see embedding.h for the contract.
#include "mudd/base/simd/vec.h"
#include "mudd/ops/embedding/embedding.h"

namespace mudd::MUDD_ISA {
namespace {

// Call body(d, n) for the vectors of a row: n = kLanes, less for the last piece.
template <class Body>
inline void over_row(int64_t width, Body body) {
  int64_t d = 0;
  for (; d + Vec::kLanes <= width; d += Vec::kLanes) body(d, Vec::kLanes);
  if (d < width) body(d, static_cast<int>(width - d));
}

inline Vec load(const float* p, int n) { return n == Vec::kLanes ? Vec::load(p) : Vec::load_n(p, n); }
inline void store(float* p, Vec v, int n) {
  if (n == Vec::kLanes) v.store(p);
  else v.store_n(p, n);
}

void fwd(int64_t begin, int64_t end, int64_t d_model, const int32_t* ids, const float* table, int64_t table_stride,
         float scale, const float* residual, int64_t residual_stride, float* y, int64_t y_stride) {
  const Vec factor = Vec::set1(scale);
  for (int64_t r = begin; r < end; ++r) {
    const float* row = table + ids[r] * table_stride;
    const float* xr = residual ? residual + r * residual_stride : nullptr;
    float* yr = y + r * y_stride;
    over_row(d_model, [&](int64_t d, int n) {
      const Vec v = load(row + d, n) * factor;
      store(yr + d, xr ? load(xr + d, n) + v : v, n);
    });
  }
}

// Set out[0..width) to scale * (sum of dy over rows[0..n), n > 0, in order).
inline void sum_rows(const float* dy, int64_t stride, const int32_t* rows, int64_t n, int64_t width, float scale,
                     float* out) {
  const Vec factor = Vec::set1(scale);
  constexpr int kTogether = 4;  // vectors: enough work for each pass over a few rows
  int64_t d = 0;
  for (; d + kTogether * Vec::kLanes <= width; d += kTogether * Vec::kLanes) {
    Vec v[kTogether];
    for (int j = 0; j < kTogether; ++j) v[j] = Vec::load(dy + rows[0] * stride + d + j * Vec::kLanes);
    for (int64_t i = 1; i < n; ++i)
      for (int j = 0; j < kTogether; ++j) v[j] = v[j] + Vec::load(dy + rows[i] * stride + d + j * Vec::kLanes);
    for (int j = 0; j < kTogether; ++j) (v[j] * factor).store(out + d + j * Vec::kLanes);
  }
  over_row(width - d, [&](int64_t at, int lanes) {
    Vec v = load(dy + rows[0] * stride + d + at, lanes);
    for (int64_t i = 1; i < n; ++i) v = v + load(dy + rows[i] * stride + d + at, lanes);
    store(out + d + at, v * factor, lanes);
  });
}

// Sum dy over rows[0..n), n > 0, all in the shards [first, last): order inside a shard, tree over shards.
// Halves of the tree without a row are skipped. `spare` has a row of kEmbeddingColumns per level below.
void tree(const EmbeddingGrad& g, const int32_t* rows, int64_t n, int first, int last, int64_t column,
          int64_t width, float* sum, float* spare) {
  if (last - first == 1) return sum_rows(g.dy + column, g.dy_stride, rows, n, width, g.scale, sum);
  const int middle = first + (last - first) / 2;
  int64_t left = 0, high = n;  // rows ascend: count the rows before the middle
  while (left < high) {
    const int64_t at = (left + high) / 2;
    if (rows[at] < g.cuts[middle]) left = at + 1;
    else high = at;
  }
  if (left == 0) return tree(g, rows, n, middle, last, column, width, sum, spare);
  if (left == n) return tree(g, rows, n, first, middle, column, width, sum, spare);
  tree(g, rows, left, first, middle, column, width, sum, spare);
  tree(g, rows + left, n - left, middle, last, column, width, spare, spare + kEmbeddingColumns);
  over_row(width,
           [&](int64_t d, int lanes) { store(sum + d, load(sum + d, lanes) + load(spare + d, lanes), lanes); });
}

// Return the first index of `found` with an id of at least `id`.
inline int64_t first_found(const EmbeddingGrad& g, int64_t id) {
  int64_t low = 0, high = g.n_found;
  while (low < high) {
    const int64_t at = (low + high) / 2;
    if (g.found[at] < id) low = at + 1;
    else high = at;
  }
  return low;
}

void bwd(const EmbeddingGrad& g, int64_t begin, int64_t end, int64_t column) {
  const int64_t width = g.width - column < kEmbeddingColumns ? g.width - column : kEmbeddingColumns;
  float sums[32 * kEmbeddingColumns];  // shards are an int: at most 31 levels
  int64_t at = first_found(g, begin);
  for (int64_t to = begin; to < end; ++to) {
    const int64_t id = g.out_ids ? g.out_ids[to] : to;
    if (g.out_ids) at = first_found(g, id);
    else if (at < g.n_found && g.found[at] < id) ++at;
    const bool occurs = at < g.n_found && g.found[at] == id;
    const int32_t* rows = occurs ? g.order + g.begin[at] : nullptr;
    const int64_t n = occurs ? g.begin[at + 1] - g.begin[at] : 0;
    if (n > 0) tree(g, rows, n, 0, g.shards, column, width, sums, sums + kEmbeddingColumns);
    const float* add[kMaxEmbeddingAdds];
    int n_add = 0;
    for (int a = 0; a < g.n_add; ++a) {
      const int64_t from = g.add_place ? g.add_place[a][id] - 1 : id;
      if (from >= 0 && (!g.add_place || from < g.add_count[a])) add[n_add++] = g.add[a] + from * g.width + column;
    }
    float* out = g.out + to * g.width + column;
    over_row(width, [&](int64_t d, int lanes) {
      const Vec zero = Vec::zero();
      Vec v = n > 0 ? load(sums + d, lanes) + zero : zero;  // -0 becomes +0
      for (int a = 0; a < n_add; ++a) v = load(add[a] + d, lanes) + v;
      store(out + d, v + zero, lanes);
    });
  }
}

}  // namespace

const EmbeddingKernels embedding_f32 = {fwd, bwd};

}  // namespace mudd::MUDD_ISA
