// StepTotals: what a step adds up over its batch. All that is decided about an update (its means, whether it is
// made, how far it is clipped) follows from these numbers, so processes that share them decide alike.
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
  double loss = 0, count = 0;        // nats over counted targets; counted targets
  double aux = 0;                    // further losses, in the same unit
  double slots = 0;                  // targets, counted or not
  double least_count = 0;            // counted targets of the graph run with the fewest,
  double most_count = 0;             // and with the most
  bool means = false;                // each graph run was scaled as if all its targets counted (micro_mean)
  bool stop = false;                 // a stop was asked for before the last graph run
  uint32_t flags = 0;                // the caller's, of any process that shares the batch
  std::vector<double> metrics;       // of TrainStepOptions::metrics, one after the other
  std::vector<double> norm_squares;  // of the summed gradients, by blocks in fixed order (reduce.h)

  void clear();
  void add_count(double counted, bool first);
};

// The largest loss and gradient norm that an update is made for.
struct StepLimits {
  double loss = std::numeric_limits<double>::infinity();
  double grad_norm = std::numeric_limits<double>::infinity();
};

struct StepReport {
  double loss_sum = 0, weight_sum = 0;  // nats over counted targets; counted targets
  double aux_loss = 0;                  // the auxiliary part, divided by the denominator
  double loss = 0;                      // divided by the denominator, the auxiliary part included
  double grad_norm = 0;                 // of the mean gradient, before clipping
  double denominator = 1;               // see Normalize
  bool finite = true;                   // loss and gradient norm; false: no update was made
  bool spike = false;                   // finite, but above a limit of StepLimits: no update was made
  bool spoilt = false;                  // the update wrote a weight or moment that is not finite
  bool stopped = false;                 // a stop was asked for between micro-batches: nothing changed
  uint32_t flags = 0;                   // the caller's, of any process that shares the batch

  bool accepted() const { return finite && !spike && !stopped; }
};

// The verdict on the totals of a whole batch. CheckError where micro_mean cannot be had: over ranks whose graph
// runs count different numbers of targets.
StepReport judge(const StepTotals& totals, Normalize normalize, const StepLimits& limits);

// What the mean gradient is multiplied with, so that its norm is at most `limit`; 0: no limit.
double clip_factor(double grad_norm, double limit);

}  // namespace mudd
