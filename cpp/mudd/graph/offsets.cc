// Where buffers live in the arena.
#include <algorithm>

#include "mudd/base/arena.h"
#include "mudd/graph/planner.h"

namespace mudd {

int64_t assign_offsets(std::vector<Buffer>& buffers, const PlanOptions& options) {
  int64_t top = aligned(options.shift);
  std::vector<Buffer*> order;
  for (Buffer& b : buffers) order.push_back(&b);
  if (options.reuse)
    std::stable_sort(order.begin(), order.end(),
                     [](const Buffer* a, const Buffer* b) { return a->bytes > b->bytes; });
  std::vector<const Buffer*> placed;  // by offset
  for (Buffer* b : order) {
    int64_t at = options.reuse ? 0 : top;
    for (const Buffer* p : placed) {
      if (!options.reuse) break;
      if (p->last < b->first || b->last < p->first) continue;
      if (p->offset - at >= b->bytes) break;
      at = std::max(at, p->offset + p->bytes);
    }
    b->offset = at;
    top = std::max(top, at + b->bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), b,
                                   [](const Buffer* x, const Buffer* y) { return x->offset < y->offset; }),
                  b);
  }
  for (Buffer& b : buffers) b.offset += options.shift;
  return top + options.shift;
}

int64_t Plan::bytes_of(char kind) const {
  std::vector<int64_t> change(schedule.size() + 2, 0);
  for (const Buffer& b : buffers)
    if (b.kind == kind) {
      change[b.first] += b.bytes;
      change[b.last + 1] -= b.bytes;
    }
  int64_t alive = 0, most = 0;
  for (int64_t c : change) most = std::max(most, alive += c);
  return most;
}

}  // namespace mudd
