// The batcher as Python holds it, shared by bind_data.cc and bind_step.cc.
#pragma once

#include <utility>

#include "mudd/base/busy.h"
#include "mudd/data/batcher.h"

namespace mudd::bind {

struct PyBatcher {
  Batcher batcher;
  BusyFlag busy;

  PyBatcher(TokenFileSpec file, BatchOrder order, int64_t seq_len, uint64_t seed, int32_t pad_id)
      : batcher(std::move(file), order, seq_len, seed, pad_id) {}
};

}  // namespace mudd::bind
