// The offsets of buffers in the arena.
#include <algorithm>

#include "mudd/base/arena.h"
#include "mudd/graph/free_space.h"
#include "mudd/graph/planner.h"

namespace mudd {

int64_t assign_offsets(std::vector<Buffer>& buffers, const PlanOptions& options) {
  int64_t top = aligned(options.shift);
  std::vector<Buffer*> order;
  for (Buffer& b : buffers) order.push_back(&b);
  if (options.reuse)
    std::stable_sort(order.begin(), order.end(),
                     [](const Buffer* a, const Buffer* b) { return a->bytes > b->bytes; });
  int last = 0;
  for (const Buffer& b : buffers) last = std::max(last, b.last);
  FreeSpace space(options.reuse ? last + 1 : 0);
  for (Buffer* b : order) {
    b->offset = options.reuse ? space.lowest(b->first, b->last, b->bytes) : top;
    top = std::max(top, b->offset + b->bytes);
    if (options.reuse) space.take(b->first, b->last, b->offset, b->bytes);
  }
  for (Buffer& b : buffers) b.offset += options.shift;
  return top + options.shift;
}

}  // namespace mudd
