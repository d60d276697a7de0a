// Planner: decides, once, when everything runs and where everything lives.
//
//   schedule  forward nodes in order, then backward nodes in reverse; a recomputed node's forward runs again
//             just before the first backward that reads its result; a result that its node can make again from
//             what it saves anyway (Node::remake) is not kept either
//   buffers   results, saved bytes, scratch and gradients, each with the span of schedule positions it lives
//   offsets   buffers whose spans do not overlap share memory (largest first, lowest offset that fits)
//   gradients first writer sets, later ones add; a residual's gradient is passed on in the same memory
#pragma once

#include <string>
#include <vector>

#include "mudd/graph/graph.h"

namespace mudd {

struct PlanOptions {
  bool reuse = true;       // false: every buffer keeps memory of its own (for debugging)
  bool recompute = false;  // run cheap nodes again in backward instead of keeping their results
  int64_t shift = 0;       // moves every buffer by this many bytes (multiple of 4; for alignment tests)
};

// A piece of the arena.
struct Buffer {
  int64_t bytes = 0;
  int first = 0, last = 0;  // schedule positions at which it is alive, inclusive
  int64_t offset = -1;
  DType dtype = DType::u8;  // of its numbers; u8: bytes of a node's own (saved, scratch)
  std::string what;         // for the memory table: "blocks.0.attn:attention.0"
  char kind = 'r';          // r result, s saved, x scratch, g gradient
};

enum class Phase : uint8_t { forward, remake, backward };

// `elements` numbers of one buffer into another of another type.
struct Conversion {
  int from = -1, to = -1;
  int64_t elements = 0;
};

// One position of the schedule with the buffers its Run is bound to (-1: none).
struct PlanStep {
  int node = 0;
  Phase phase = Phase::forward;
  std::vector<int> in, out, saved, dout, din;  // buffer numbers; inputs and parameters have none (-1)
  int scratch = -1;
  std::vector<uint8_t> accumulate;        // per input
  std::vector<Conversion> widen, narrow;  // before and after a node that works in fp32 alone
  int pass_from = -1, pass_to = -1;       // executor adds buffer pass_from to pass_to (a passed gradient)
};

struct Plan {
  std::vector<PlanStep> schedule;
  std::vector<Buffer> buffers;
  int64_t arena_bytes = 0;
  std::vector<int> final_buffer;  // per value: the buffer holding it at the end, -1 if gone or not in the arena

  int64_t bytes_of(char kind) const;  // largest sum over buffers of this kind alive at one position
};

// Values in `keep` stay readable after the last step. Root nodes of backward are the producers of `losses`.
Plan make_plan(const Graph& graph, const std::vector<ValueId>& losses, const std::vector<ValueId>& keep,
               const PlanOptions& options);

// Gives every buffer its offset; returns the arena size.
int64_t assign_offsets(std::vector<Buffer>& buffers, const PlanOptions& options);

}  // namespace mudd
