// A matrix of a node as the right operand of its GEMMs: the packed copy of the parameter store, or a matrix to
// pack into the node's scratch.
#pragma once

#include "mudd/graph/node.h"
#include "mudd/kernels/gemm/gemm.h"

namespace mudd {

struct RightOperand {
  const void* kept = nullptr;  // panels of the store
  Unpacked pack;               // otherwise the matrix to pack, and the destination

  // input: [rows, cols] of w; GEMMs sum over its rows (plain) or its columns. scratch: packed_bytes, or null if
  // the parameter store holds the packed copy; StateError if it has none. `op` names the node.
  RightOperand() = default;
  RightOperand(const char* op, const Run& run, int input, Pack how, void* scratch);

  void put(GemmBlock* whole) const {  // the threads of that GEMM pack it
    whole->b = kept;
    whole->pack = pack;
  }
  const void* panels() const { return kept ? kept : pack.to; }  // for blocks: after pack_weights({pack, ...})
};

}  // namespace mudd
