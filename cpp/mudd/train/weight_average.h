// WeightAverage: a running mean of the trained weights over the updates of a run, in a separate fp32 plane. Each
// process has the elements that it updates.
#pragma once

#include <cstdint>
#include <vector>

#include "mudd/graph/executor.h"
#include "mudd/train/gradient_sync.h"

namespace mudd {

class WeightAverage {
 public:
  // sync: has the part of each parameter that is updated here. plane: of an earlier step of the same run; -1: a
  // new one.
  WeightAverage(Executor& executor, GradientSync& sync, int plane);

  // Set average = average + weight (w - average) for every element, each operation rounded once; a weight of 1
  // copies w. Bits do not depend on the thread count or on the division of the elements among processes.
  void add(double weight);
  // Exchange the average and the weights, and refresh the packed copies; a second call restores both. All
  // processes call it together, while none reads the weights.
  void swap();

  int plane() const { return plane_; }  // in the ParamStore

 private:
  // The elements of a parameter that are updated here.
  struct AveragedPart {
    Part part;
    float* weights = nullptr;
    float* average = nullptr;
    int64_t first_task = 0;
  };

  template <class Body>
  void over_blocks(Body body) const;

  Executor& executor_;
  GradientSync& sync_;
  int plane_;
  std::vector<AveragedPart> pieces_;
  int64_t tasks_ = 0;  // of all pieces
};

}  // namespace mudd
