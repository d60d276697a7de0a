// RoomError: a run received more data than it has memory for, which it could not know before. Exit code 2 with
// a message (mudd_core.base.errors.UserError); nothing is written.
#pragma once

#include <stdexcept>

namespace mudd {

class RoomError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace mudd
