// Planner: fixes the order of execution and the place of every buffer, once.
//
//   schedule  forward nodes in order, then backward nodes in reverse; a recomputed node's forward runs again
//             just before the first backward that reads its result; a result that its node can recompute
//             from its saved bytes (Node::remake) is not kept either
//   buffers   results, saved bytes, scratch and gradients, each with the span of schedule positions it lives
//   offsets   buffers whose spans do not overlap share memory (largest first, lowest offset that fits)
//   gradients first writer sets, later ones add; a residual's gradient is passed on in the same memory
#pragma once

#include <string>
#include <vector>

#include "mudd/graph/graph.h"
#include "mudd/params/param_store.h"

namespace mudd {

struct PlanOptions {
  bool reuse = true;       // false: every buffer keeps memory of its own (for debugging)
  bool recompute = false;  // run cheap nodes again in backward instead of keeping their results
  int64_t shift = 0;       // moves every buffer by this many bytes (multiple of 8, as doubles need; for tests)
};

// What a buffer holds: a scratch buffer may also be an fp32 copy of a bf16 value.
enum class BufferKind : uint8_t { input, result, saved, scratch, gradient, weights };
const char* name_of(BufferKind kind);

// A piece of the arena.
struct Buffer {
  int64_t bytes = 0;
  int first = 0, last = 0;  // schedule positions at which it is alive, inclusive
  int64_t offset = -1;
  DType dtype = DType::u8;  // of its numbers; u8: bytes of a node's own (saved, scratch)
  std::string what;         // for the memory table: "blocks.0.attn:attention.0"
  BufferKind kind = BufferKind::result;
};

enum class NodePass : uint8_t { forward, remake, backward };

// `elements` numbers of one buffer into another of another type.
struct Conversion {
  int from = -1, to = -1;
  int64_t elements = 0;
};

// One position of the schedule with the buffers its Run is bound to (-1: none).
struct PlanStep {
  int node = 0;
  NodePass phase = NodePass::forward;
  std::vector<int> in, out, saved, dout, din;  // buffer numbers; inputs and parameters have none (-1)
  int scratch = -1;
  std::vector<uint8_t> accumulate;        // per input
  std::vector<Conversion> widen, narrow;  // before and after a node that works in fp32 alone
  int pass_from = -1, pass_to = -1;       // executor adds buffer pass_from to pass_to (a passed gradient)
};

// A use of a parameter that leads to a loss: the node at `position` of the schedule writes the gradient of its
// input. In the last graph run of a step the sum over the runs is final once that position has run.
struct GradientUse {
  int position = 0, input = 0;
  int parameter = 0;  // in the ParamStore
  int use = 0;        // number of this use among those of the parameter, in the order of forward
};

// Uses [begin, end) of Plan::gradients, which processes sum together once backward has made them. Its memory,
// where it is not kept until the end of the step, is taken from the position `first` on and given back behind
// `last`.
struct GradientBucket {
  int begin = 0, end = 0;
  int first = 0, last = 0;
};

// Weights that a graph gathers from their owners together, and that it then reads between two positions.
struct WeightUnit {
  std::vector<WeightSource::Wanted> members;
  int post = 0;    // position before which the gather begins: a unit ahead
  int first = 0;   // position before which it must have ended
  int buffer = 0;  // in Plan::weights; lives from `post` to the last reader
};

struct Plan {
  std::vector<PlanStep> schedule;
  int backward_begin = 0;              // position at which backward starts; the schedule's size without one
  std::vector<GradientUse> gradients;  // in finishing order
  std::vector<Buffer> buffers;
  int64_t arena_bytes = 0;
  std::vector<WeightUnit> units;  // in the order in which they are gathered; none where all weights are here
  std::vector<Buffer> weights;    // their buffers, with offsets in memory of their own, which a node shares
  int64_t weight_bytes = 0;
  std::vector<int> final_buffer;  // per value: the buffer holding it at the end, -1 if gone or not in the arena
};

// Values in `keep` stay readable after the last step. Root nodes of backward are the producers of `losses`.
Plan make_plan(const Graph& graph, const std::vector<ValueId>& losses, const std::vector<ValueId>& keep,
               const PlanOptions& options);

// The uses of parameters in a schedule, in the order in which their gradients are written.
std::vector<GradientUse> gradient_uses(const Graph& graph, const std::vector<PlanStep>& schedule);

// Cuts the uses into buckets of at least so many bytes, borders between uses. first and last: a bucket's memory
// may be taken again when the bucket behind it has been written, too.
std::vector<GradientBucket> cut_buckets(const Declarations& parameters, const std::vector<GradientUse>& uses,
                                        int64_t bytes);

// Fills Plan::units, weights and weight_bytes with what the schedule reads of parameters that are gathered: layer
// by layer, once for forward and once for backward.
void plan_gathers(const Graph& graph, const PlanOptions& options, Plan& plan);

// Gives every buffer its offset; returns the arena size.
int64_t assign_offsets(std::vector<Buffer>& buffers, const PlanOptions& options);

}  // namespace mudd
