#include "mudd/graph/node.h"

#include "mudd/base/check.h"

namespace mudd {

Shards Shards::cut(int64_t samples, int wanted) {
  check(samples >= 1, "shards", "samples: expected at least 1, got ", samples);
  check(wanted >= 1 && (wanted & (wanted - 1)) == 0, "shards", "logical_shards: expected a power of two, got ",
        wanted);
  int64_t n = wanted;
  while (n > samples) n /= 2;
  Shards s;
  s.sample_begin.assign(1, 0);
  for (int64_t i = 0; i < n; ++i)
    s.sample_begin.push_back(s.sample_begin.back() + samples / n + (i < samples % n ? 1 : 0));
  return s;
}

}  // namespace mudd
