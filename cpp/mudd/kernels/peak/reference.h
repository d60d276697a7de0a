// The loops of peak in any element type: a chain of multiply-adds, a sum.
#pragma once

#include <cstdint>

namespace mudd::reference {

template <class N>
N multiply_add_chain(N start, N factor, N addend, int64_t rounds) {
  for (int64_t r = 0; r < rounds; ++r) start = start * factor + addend;
  return start;
}

}  // namespace mudd::reference
