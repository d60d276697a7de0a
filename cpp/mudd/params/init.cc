#include "mudd/params/init.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/base/rng.h"
#include "mudd/kernels/convert/convert.h"

namespace mudd {
namespace {

// Call fill(begin, end) for pieces of elements [first, end); the values do not depend on the split.
template <class Fill>
void over_pieces(int64_t first, int64_t end, Fill fill) {
  constexpr int64_t kPiece = 65536;
  parallel_for((end - first + kPiece - 1) / kPiece, [&](int64_t task, int) {
    fill(first + task * kPiece, std::min(end, first + (task + 1) * kPiece));
  });
}

void fill_constant(float* out, int64_t size, double value) {
  over_pieces(0, size,
              [&](int64_t begin, int64_t end) { std::fill(out + begin, out + end, static_cast<float>(value)); });
}

// Write zeros over other numbers only. A large table in new memory then takes memory only for rows that training
// writes.
void fill_zeros(float* out, int64_t size) {
  over_pieces(0, size, [&](int64_t begin, int64_t end) {
    for (float* at = out + begin; at < out + end; ++at)
      if (std::bit_cast<uint32_t>(*at) != 0) *at = 0;
  });
}

}  // namespace

void initialize(const Parameter& p, uint64_t seed, int64_t begin, int64_t end, float* out) {
  if (p.init == "zeros") return fill_zeros(out, end - begin);
  if (p.init == "ones") return fill_constant(out, end - begin, 1);
  if (p.init == "last_column") {
    fill_constant(out, end - begin, 0);
    for (int64_t last = begin / p.cols() * p.cols() + p.cols() - 1; last < end; last += p.cols())
      out[last - begin] = 1;
    return;
  }
  const double scale = p.init_scale;
  check(std::isfinite(scale), "init", p.name, ".init_scale: expected a finite number, got ", scale);
  if (p.init == "constant") return fill_constant(out, end - begin, scale);
  check(p.init == "normal" || p.init == "truncated_normal" || p.init == "uniform", "init", p.name,
        ".init: expected normal, truncated_normal, uniform, constant, zeros, ones or last_column, got '", p.init,
        "'");
  check(scale >= 0, "init", p.name, ".init_scale: expected a number >= 0, got ", scale);
  const PhiloxKey key = philox_key(seed, "init." + p.name);
  over_pieces(begin, end, [&](int64_t from, int64_t to) {
    float* at = out + (from - begin);
    if (p.init == "normal") fill_normal(at, from, to, scale, key);
    else if (p.init == "truncated_normal") fill_truncated_normal(at, from, to, scale, key);
    else fill_uniform(at, from, to, -scale, scale, key);
  });
}

// The ranks of a host divide the parameters in its shared memory.
void initialize(ParamStore& store, uint64_t seed) {
  const NodeShare& share = store.share();
  for (int i = 0; i < store.parameters().count(); ++i) {
    if (store.parameters().of_node(i) && i % share.size != share.rank) continue;
    if (store.planes().is_lent(i)) continue;  // by a file that has its values
    const Parameter& p = store.parameters().at(i);
    const Part part = store.parameters().held(i);
    if (p.stored == DType::f32) {
      initialize(p, seed, part.begin, part.end, store.planes().master(i));
      continue;
    }
    std::vector<float> wide(static_cast<size_t>(part.size()));
    initialize(p, seed, part.begin, part.end, wide.data());
    copy_rounded(part.size(), wide.data(), store.planes().weights(i).cells());
  }
  store.packs().repack_all();
}

}  // namespace mudd
