// Compiled once for each ISA level, with its Vec (base/simd/vec.h); see table_gradient.h for the contract.
#include "mudd/base/simd/rows.h"
#include "mudd/kernels/table_gradient/table_gradient.h"

namespace mudd::MUDD_ISA {
namespace {

// The look-ups of one row of the table, all in a range of shards.
struct LookUps {
  const int32_t* rows;
  const float* signs;
  int64_t n;

  LookUps from(int64_t at) const { return {rows + at, signs ? signs + at : nullptr, n - at}; }
  LookUps before(int64_t at) const { return {rows, signs, at}; }
};

// Set out[0..width) to scale * (sum of sign * dy over the look-ups, at least one, in order).
template <bool kSigned>
inline void sum_rows(const float* dy, int64_t stride, const LookUps& l, int64_t width, float scale, float* out) {
  const Vec factor = Vec::set1(scale);
  const auto signed_row = [&](int64_t i, Vec v) { return kSigned ? v * Vec::set1(l.signs[i]) : v; };
  constexpr int kTogether = 4;  // vectors: enough work for each pass over a few rows
  int64_t d = 0;
  for (; d + kTogether * Vec::kLanes <= width; d += kTogether * Vec::kLanes) {
    Vec v[kTogether];
    const auto at = [&](int64_t i, int j) {
      return signed_row(i, Vec::load(dy + l.rows[i] * stride + d + j * Vec::kLanes));
    };
    for (int j = 0; j < kTogether; ++j) v[j] = at(0, j);
    for (int64_t i = 1; i < l.n; ++i)
      for (int j = 0; j < kTogether; ++j) v[j] = v[j] + at(i, j);
    for (int j = 0; j < kTogether; ++j) (v[j] * factor).store(out + d + j * Vec::kLanes);
  }
  over_row(width - d, [&](int64_t c, int lanes) {
    Vec v = signed_row(0, load(dy + l.rows[0] * stride + d + c, lanes));
    for (int64_t i = 1; i < l.n; ++i) v = v + signed_row(i, load(dy + l.rows[i] * stride + d + c, lanes));
    store(out + d + c, v * factor, lanes);
  });
}

// Sum dy over the look-ups, all in the shards [first, last): order inside a shard, tree over shards. Halves of the
// tree without a look-up are skipped. `spare` has a row of kTableColumns per level below.
void tree(const TableGradient& g, const LookUps& l, int first, int last, int64_t column, int64_t width, float* sum,
          float* spare) {
  if (last - first == 1)
    return l.signs ? sum_rows<true>(g.dy + column, g.dy_stride, l, width, g.scale, sum)
                   : sum_rows<false>(g.dy + column, g.dy_stride, l, width, g.scale, sum);
  const int middle = first + (last - first) / 2;
  int64_t left = 0, high = l.n;  // rows ascend: count the rows before the middle
  while (left < high) {
    const int64_t at = (left + high) / 2;
    if (l.rows[at] < g.cuts[middle]) left = at + 1;
    else high = at;
  }
  if (left == 0) return tree(g, l, middle, last, column, width, sum, spare);
  if (left == l.n) return tree(g, l, first, middle, column, width, sum, spare);
  tree(g, l.before(left), first, middle, column, width, sum, spare);
  tree(g, l.from(left), middle, last, column, width, spare, spare + kTableColumns);
  over_row(width,
           [&](int64_t d, int lanes) { store(sum + d, load(sum + d, lanes) + load(spare + d, lanes), lanes); });
}

// Return the first index of `found` with an id of at least `id`.
inline int64_t first_found(const TableGradient& g, int64_t id) {
  int64_t low = 0, high = g.n_found;
  while (low < high) {
    const int64_t at = (low + high) / 2;
    if (g.found[at] < id) low = at + 1;
    else high = at;
  }
  return low;
}

// Return the look-ups of found[at].
inline LookUps look_ups(const TableGradient& g, int64_t at) {
  const int64_t first = g.begin[at];
  return {g.order + first, g.signs ? g.signs + first : nullptr, g.begin[at + 1] - first};
}

void write(const TableGradient& g, int64_t begin, int64_t end, int64_t column) {
  const int64_t width = g.width - column < kTableColumns ? g.width - column : kTableColumns;
  float sums[32 * kTableColumns];  // shards are an int: at most 31 levels
  int64_t at = first_found(g, begin);
  for (int64_t to = begin; to < end; ++to) {
    const int64_t id = g.out_ids ? g.out_ids[to] : to;
    if (g.out_ids) at = first_found(g, id);
    else if (at < g.n_found && g.found[at] < id) ++at;
    const bool occurs = at < g.n_found && g.found[at] == id;
    if (occurs) tree(g, look_ups(g, at), 0, g.shards, column, width, sums, sums + kTableColumns);
    const float* add[kMaxTableAdds];
    int n_add = 0;
    for (int a = 0; a < g.n_add; ++a) {
      const int64_t from = g.add_place ? g.add_place[a][id] - 1 : id;
      if (from >= 0 && (!g.add_place || from < g.add_count[a])) add[n_add++] = g.add[a] + from * g.width + column;
    }
    float* out = g.out + to * g.width + column;
    over_row(width, [&](int64_t d, int lanes) {
      const Vec zero = Vec::zero();
      Vec v = occurs ? load(sums + d, lanes) + zero : zero;  // -0 becomes +0
      for (int a = 0; a < n_add; ++a) v = load(add[a] + d, lanes) + v;
      store(out + d, v + zero, lanes);
    });
  }
}

}  // namespace

const TableGradientKernels table_gradient_f32 = {write};

}  // namespace mudd::MUDD_ISA
