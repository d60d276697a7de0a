// A matrix of a node as the right operand of its products: as the parameter store keeps it, packed, or still to be
// packed into the node's scratch.
#pragma once

#include "mudd/graph/node.h"
#include "mudd/kernels/gemm/gemm.h"

namespace mudd {

struct RightOperand {
  const void* kept = nullptr;  // panels of the store
  Unpacked pack;               // otherwise what to pack, and where to

  // input: [rows, cols] of w that products sum over its rows (plain) or its columns; scratch: packed_bytes, or
  // null where infer() asked the store to keep it. StateError if then the store did not. `op` names the node.
  RightOperand() = default;
  RightOperand(const char* op, const Run& run, int input, Pack how, void* scratch);

  void put(GemmBlock* whole) const {  // the threads of that product pack it
    whole->b = kept;
    whole->pack = pack;
  }
  const void* panels() const { return kept ? kept : pack.to; }  // for blocks: after pack_weights({pack, ...})
};

}  // namespace mudd
