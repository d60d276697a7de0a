// StepTotals: the sums of a step over its batch. All decisions about an update (its means, whether it is made,
// its clipping) depend on these values, so processes with equal totals decide alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace mudd {

// The denominator that turns the summed loss and gradients into means (contracts 3).
enum class Normalize : uint8_t { valid, all_slots, micro_mean };
Normalize parse_normalize(const std::string& name);

struct StepTotals {
  double loss = 0, count = 0;        // nats over targets that are not ignored; their count
  double aux = 0;                    // further losses, in the same unit
  double objective = 0;              // the loss that has the gradients, without aux
  double slots = 0;                  // all targets, ignored ones included
  double least_count = 0;            // least and most targets of a graph run,
  double most_count = 0;             // without ignored ones
  bool means = false;                // each graph run was scaled as if no target were ignored (micro_mean)
  bool stop = false;                 // a stop was requested before the last graph run
  uint32_t flags = 0;                // set by the caller on any process that shares the batch
  std::vector<double> metrics;       // of TrainStepOptions::metrics, in order
  std::vector<double> norm_squares;  // of the summed gradients, by blocks in fixed order (reduce.h)

  void clear();
  void add_count(double counted, bool first);
};

// The largest loss and gradient norm of an accepted update.
struct StepLimits {
  double loss = std::numeric_limits<double>::infinity();
  double grad_norm = std::numeric_limits<double>::infinity();
};

struct StepReport {
  double loss_sum = 0, weight_sum = 0;  // nats over targets that are not ignored; their count
  double aux_loss = 0;                  // the auxiliary part, divided by the denominator
  double loss = 0;                      // divided by the denominator, the auxiliary part included
  double objective = 0;                 // the same of the loss that has the gradients
  double grad_norm = 0;                 // of the mean gradient, before clipping
  double denominator = 1;               // see Normalize
  bool finite = true;                   // loss and gradient norm are finite; false: no update was made
  bool spike = false;                   // finite, but above a limit of StepLimits: no update was made
  bool spoilt = false;                  // the update wrote a weight or moment that is not finite
  bool stopped = false;                 // a stop was requested between micro-batches: nothing changed
  uint32_t flags = 0;                   // set by the caller on any process that shares the batch

  bool accepted() const { return finite && !spike && !stopped; }
};

// Run the finite check on the totals of a whole batch. CheckError if micro_mean is impossible: over ranks whose
// graph runs have different counts of targets.
StepReport judge(const StepTotals& totals, Normalize normalize, const StepLimits& limits);

// Return the factor that limits the norm of the mean gradient to `limit`; 0: no limit.
double clip_factor(double grad_norm, double limit);

}  // namespace mudd
