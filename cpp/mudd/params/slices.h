// Slices: the elements of every parameter that each owner has: one contiguous part between borders of units
// (units.h), or nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "mudd/params/declarations.h"

namespace mudd {

// Returns true if each matrix of a parameter needs a single owner (some optimizers do).
using WholeMatrices = std::function<bool(const Parameter&)>;

class Slices {
 public:
  // For `parameters` parameters without owners.
  Slices(int parameters, int owners);
  // For all parameters, by their declarations only: a parameter with as many units as owners is divided alone, the
  // others together with their neighbours. left_out: parameters without owners.
  Slices(const Declarations& parameters, int owners, const WholeMatrices& whole,
         const std::function<bool(const Parameter&)>& left_out = {});

  // Give each owner about the same count of elements of these parameters: a unit goes to the owner at its
  // middle.
  void share_out(const Declarations& parameters, const std::vector<int>& members, const WholeMatrices& whole);

  int owners() const { return owners_; }
  Part part(int parameter, int owner) const {
    return {parameter, borders_[parameter][owner], borders_[parameter][owner + 1]};
  }

 private:
  int owners_;
  std::vector<std::vector<int64_t>> borders_;  // [parameter][owners + 1]
};

}  // namespace mudd
