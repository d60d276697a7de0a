// RoomError: what a run got, and could not know before, is more than it has memory for. A message and exit code 2
// (mudd_core.base.errors.UserError), nothing written.
#pragma once

#include <stdexcept>

namespace mudd {

class RoomError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace mudd
