// moe_route as formulas, for double or complex<double> (branches look at the real part).
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include "mudd/ops/activation/reference.h"

namespace mudd::reference {

// One token: z [E] -> p [E], the k chosen experts best first, their gates. Returns log(sum exp z).
template <class N>
N route(int64_t experts, int64_t k, const N* z, N* p, int64_t* chosen, N* gates) {
  using std::exp;
  using std::log;
  N sum = 0;
  for (int64_t e = 0; e < experts; ++e) sum += exp(z[e]);
  for (int64_t e = 0; e < experts; ++e) p[e] = exp(z[e]) / sum;
  std::vector<bool> taken(static_cast<size_t>(experts), false);
  N total = 0;
  for (int64_t r = 0; r < k; ++r) {
    int64_t best = -1;
    for (int64_t e = 0; e < experts; ++e)
      if (!taken[static_cast<size_t>(e)] && (best < 0 || real_part(p[e]) > real_part(p[best]))) best = e;
    taken[static_cast<size_t>(best)] = true;
    chosen[r] = best;
    total += p[best];
  }
  for (int64_t r = 0; r < k; ++r) gates[r] = p[chosen[r]] / total;
  return log(sum);
}

}  // namespace mudd::reference
