// Slices: which of some owners has which elements of every parameter. Each owner has one contiguous part of a
// parameter, between borders of units (units.h), or nothing of it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "mudd/params/declarations.h"

namespace mudd {

// Whether the matrices of a parameter have one owner each, as an optimizer needs them.
using WholeMatrices = std::function<bool(const Parameter&)>;

class Slices {
 public:
  // Of so many parameters, none of which anybody owns yet.
  Slices(int parameters, int owners);
  // Of all parameters, by their declarations alone: one with as many units as there are owners is shared out by
  // itself, the others together with their neighbours. left_out: parameters that nobody owns.
  Slices(const Declarations& parameters, int owners, const WholeMatrices& whole,
         const std::function<bool(const Parameter&)>& left_out = {});

  // Gives each owner about as many numbers of the members: a unit goes where its middle falls.
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
