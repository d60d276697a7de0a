#include "mudd/params/init.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/base/rng.h"
#include "mudd/kernels/convert/convert.h"

namespace mudd {
namespace {

// Runs fill(begin, end) over pieces of the parameter; the values do not depend on the cut.
template <class Fill>
void over_pieces(int64_t size, Fill fill) {
  constexpr int64_t kPiece = 65536;
  parallel_for((size + kPiece - 1) / kPiece,
               [&](int64_t task, int) { fill(task * kPiece, std::min(size, (task + 1) * kPiece)); });
}

void fill_constant(float* out, int64_t size, double value) {
  over_pieces(size,
              [&](int64_t begin, int64_t end) { std::fill(out + begin, out + end, static_cast<float>(value)); });
}

}  // namespace

void initialize(const Parameter& p, uint64_t seed, float* out) {
  if (p.init == "zeros") return fill_constant(out, p.size(), 0);
  if (p.init == "ones") return fill_constant(out, p.size(), 1);
  if (p.init == "last_column") {
    fill_constant(out, p.size(), 0);
    for (int64_t r = 1; r <= p.rows(); ++r) out[r * p.cols() - 1] = 1;
    return;
  }
  const double scale = p.init_scale;
  check(std::isfinite(scale), "init", p.name, ".init_scale: expected a finite number, got ", scale);
  if (p.init == "constant") return fill_constant(out, p.size(), scale);
  check(p.init == "normal" || p.init == "truncated_normal" || p.init == "uniform", "init", p.name,
        ".init: expected normal, truncated_normal, uniform, constant, zeros, ones or last_column, got '", p.init,
        "'");
  check(scale >= 0, "init", p.name, ".init_scale: expected a number >= 0, got ", scale);
  const PhiloxKey key = philox_key(seed, "init." + p.name);
  over_pieces(p.size(), [&](int64_t begin, int64_t end) {
    if (p.init == "normal") fill_normal(out + begin, begin, end, scale, key);
    else if (p.init == "truncated_normal") fill_truncated_normal(out + begin, begin, end, scale, key);
    else fill_uniform(out + begin, begin, end, -scale, scale, key);
  });
}

void initialize(ParamStore& store, uint64_t seed) {
  const NodeShare& share = store.share();
  for (int i = share.rank; i < store.parameters().count(); i += share.size) {
    if (store.parameters().at(i).stored == DType::f32) {
      initialize(store.parameters().at(i), seed, store.planes().master(i));
      continue;
    }
    std::vector<float> wide(static_cast<size_t>(store.parameters().at(i).size()));
    initialize(store.parameters().at(i), seed, wide.data());
    copy_rounded(store.parameters().at(i).size(), wide.data(), store.planes().weights(i).cells());
  }
  store.packs().repack_all();
}

}  // namespace mudd
