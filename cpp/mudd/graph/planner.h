// Planner: fixes the order of execution and the offset of every buffer, once.
//
//   schedule  forward nodes in order, then backward nodes in reverse; a recomputed node's forward runs again
//             just before the first backward that reads its result; a result that its node can recompute
//             from its saved bytes (Node::remake) is not kept either
//   buffers   results, saved bytes, scratch and gradients, each with its lifetime in schedule positions
//   offsets   buffers with disjoint lifetimes share memory (largest first, lowest offset that fits)
//   gradients the first writer sets, later ones add; a residual's gradient is passed on in the same memory
#pragma once

#include <string>
#include <vector>

#include "mudd/graph/graph.h"
#include "mudd/params/param_store.h"

namespace mudd {

struct PlanOptions {
  bool reuse = true;       // false: every buffer keeps separate memory (for debugging)
  bool recompute = false;  // run cheap nodes again in backward instead of keeping their results
  int64_t shift = 0;  // for tests: bytes to add to each buffer's offset, a multiple of 8 (alignment of doubles)
};

// The content of a buffer: a scratch buffer may also be an fp32 copy of a bf16 value.
enum class BufferKind : uint8_t { input, result, saved, scratch, gradient, weights };
const char* name_of(BufferKind kind);

// A buffer in the arena.
struct Buffer {
  int64_t bytes = 0;
  int64_t likely = -1;      // bytes that a run is planned to touch; -1: all
  int first = 0, last = 0;  // schedule positions at which it is alive, inclusive
  int64_t offset = -1;
  DType dtype = DType::u8;  // of its elements; u8: raw bytes of a node (saved, scratch)
  std::string what;         // for the memory table: "blocks.0.attn:attention.0"
  BufferKind kind = BufferKind::result;
};

enum class NodePass : uint8_t { forward, remake, backward };

// A conversion of `elements` elements between two buffers of different types.
struct Conversion {
  int from = -1, to = -1;
  int64_t elements = 0;
};

// One position of the schedule with the buffers of its Run (-1: none).
struct PlanStep {
  int node = 0;
  NodePass phase = NodePass::forward;
  std::vector<int> in, out, saved, dout, din;  // buffer indices; inputs and parameters have none (-1)
  int scratch = -1;
  std::vector<uint8_t> accumulate;        // per input
  std::vector<Conversion> widen, narrow;  // before and after a node that only works in fp32
  int pass_from = -1, pass_to = -1;       // executor adds buffer pass_from to pass_to (a passed gradient)
};

// A use of a parameter that leads to a loss: the node at `position` of the schedule writes the gradient of its
// input. In the last graph run of a step the sum over the runs is final after that position.
struct GradientUse {
  int position = 0, input = 0;
  int parameter = 0;  // in the ParamStore
  int use = 0;        // index of this use among the uses of the parameter, in forward order
};

// Uses [begin, end) of Plan::gradients, which processes sum together after backward has computed them. If its
// memory is not kept until the end of the step, it is in use from the position `first` to `last`.
struct GradientBucket {
  int begin = 0, end = 0;
  int first = 0, last = 0;
};

// Weights that a graph gathers from their owners together and reads between two positions.
struct WeightUnit {
  std::vector<WeightSource::Wanted> members;
  int post = 0;    // position before which the gather starts: one unit ahead
  int first = 0;   // position before which it must be complete
  int buffer = 0;  // in Plan::weights; lives from `post` to the last reader
};

struct Plan {
  std::vector<PlanStep> schedule;
  int backward_begin = 0;              // position at which backward starts; the schedule's size without one
  std::vector<GradientUse> gradients;  // in finishing order
  std::vector<Buffer> buffers;
  int64_t arena_bytes = 0;        // address space
  int64_t likely_bytes = 0;       // expected memory of runs in it (Inference::saved)
  std::vector<WeightUnit> units;  // in the order of gathering; none if all weights are local
  std::vector<Buffer> weights;    // their buffers, with offsets in separate memory, which a host shares
  int64_t weight_bytes = 0;
  std::vector<int> final_buffer;  // per value: its buffer at the end, -1 if gone or not in the arena
};

// Create a plan. Values in `keep` stay readable after the last step. Backward starts at the producers of
// `losses`.
Plan make_plan(const Graph& graph, const std::vector<ValueId>& losses, const std::vector<ValueId>& keep,
               const PlanOptions& options);

// Return the uses of parameters in a schedule, in the order in which their gradients are written.
std::vector<GradientUse> gradient_uses(const Graph& graph, const std::vector<PlanStep>& schedule);

// Group the uses into buckets of at least `bytes` bytes, with borders between uses. first and last: a bucket's
// memory may be reused after the next bucket has been written.
std::vector<GradientBucket> cut_buckets(const Declarations& parameters, const std::vector<GradientUse>& uses,
                                        int64_t bytes);

// Fill Plan::units, weights and weight_bytes with the gathered parameters of the schedule: layer by layer, once
// for forward and once for backward.
void plan_gathers(const Graph& graph, const PlanOptions& options, Plan& plan);

// Assign an offset to every buffer; return the arena size.
int64_t assign_offsets(std::vector<Buffer>& buffers, const PlanOptions& options);

}  // namespace mudd
