// The batcher as Python holds it, shared by bind_data.cc and bind_step.cc.
#pragma once

#include <atomic>
#include <utility>

#include "mudd/base/check.h"
#include "mudd/data/batcher.h"

namespace mudd::bind {

// One object from two threads at once is an error of the caller, not a race: its buffers have one user.
class Busy {
 public:
  explicit Busy(std::atomic<bool>& flag) : flag_(flag) {
    if (flag_.exchange(true)) throw StateError("[batcher] called from two threads at once; use one object each");
  }
  ~Busy() { flag_ = false; }

 private:
  std::atomic<bool>& flag_;
};

struct PyBatcher {
  Batcher batcher;
  std::atomic<bool> busy{false};

  PyBatcher(TokenFileSpec file, BatchOrder order, int64_t seq_len, uint64_t seed, int32_t pad_id)
      : batcher(std::move(file), order, seq_len, seed, pad_id) {}
};

}  // namespace mudd::bind
