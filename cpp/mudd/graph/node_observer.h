// NodeObserver: sees each value of a training step right after it has been written: the batch, the results and
// gradients of every node, the sums of gradients, and the updated weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mudd/base/types.h"

namespace mudd {

// The stages of a step, in order. recompute: forward runs again in backward. sum: of gradients over graph runs or
// ranks. step: scalars of the whole step, such as the learning rate.
enum class StepStage : uint8_t { state, data, forward, recompute, backward, sum, step, update };
const char* name_of(StepStage stage);
StepStage parse_stage(const std::string& name);

// A value and its place in a step.
struct Observed {
  StepStage stage = StepStage::forward;
  int run = 0;             // graph run of the step
  std::string place = {};  // label of the node, or name of the weight
  std::string op = {};     // "rms_norm", "sum over ranks", name of the optimizer
  std::string value = {};  // "output 0", "gradient of input 1", "gradient of embed"
  std::vector<int64_t> shape = {};
  Tensor tensor = {};     // the memory of the step, in its stored type: a test may change it
  int64_t begin = 0;      // of the elements that are here, if other ranks have the others
  bool of_ranks = false;  // includes samples of other ranks, as the gradient of a sharded expert does
  int64_t first_row = 0;  // data: the sample of the first row in the batch

  // Return the text of the command diff for the value (python/mudd_core/fingerprint/lines.py):
  // "attention (forward) in blocks.0.attn: output 0, micro-batch 2".
  std::string title() const;
};

class NodeObserver {
 public:
  virtual ~NodeObserver() = default;
  virtual void see(const Observed& value) = 0;
};

// Note the first value that has NaN or infinity. Integers and the float64 sums of a loss are not checked, because
// the values before them are.
class NonFiniteCheck final : public NodeObserver {
 public:
  void see(const Observed& value) override;
  void clear() { found_.clear(); }
  // Return "attention (forward) in blocks.0.attn: output 0, float32 [2, 8, 64], nan at [0, 3, 5]"; empty: none.
  const std::string& found() const { return found_; }

 private:
  std::string found_;
};

}  // namespace mudd
