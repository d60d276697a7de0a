#include "mudd/data/token_ids.h"

#include <algorithm>
#include <utility>

#include "mudd/base/check.h"

namespace mudd {

MemoryIds::MemoryIds(std::vector<int32_t> ids, int64_t vocab_size)
    : ids_(std::move(ids)), vocab_size_(vocab_size) {
  for (const int32_t id : ids_)
    check(id >= 0 && id < vocab_size_, "rows", "ids: expected ids below ", vocab_size_, ", got ", id);
}

void MemoryIds::read(int64_t first, int64_t n, int32_t* out) {
  check(first >= 0 && n >= 0 && first <= static_cast<int64_t>(ids_.size()) - n, "rows",
        "ids: expected a range of ", ids_.size(), ", got ", n, " from ", first);
  std::copy_n(ids_.begin() + first, n, out);
}

}  // namespace mudd
