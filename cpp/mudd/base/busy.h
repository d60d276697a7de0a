// A check that an object has one user at a time: two threads at once are an error of the caller, not a race.
#pragma once

#include <atomic>
#include <string>

#include "mudd/base/check.h"

namespace mudd {

// The member of an object that has one user at a time. Moving the object leaves both without a user.
class BusyFlag {
 public:
  BusyFlag() = default;
  BusyFlag(BusyFlag&&) noexcept {}
  BusyFlag& operator=(BusyFlag&&) noexcept { return *this; }

 private:
  friend class Busy;
  std::atomic<bool> taken_{false};
};

// Uses an object during its lifetime; StateError if another user does.
class Busy {
 public:
  Busy(BusyFlag& flag, const char* object) : flag_(flag) {
    if (flag_.taken_.exchange(true))
      throw StateError(std::string("[") + object +
                       "] called from two threads at once; create one object for each thread");
  }
  ~Busy() { flag_.taken_ = false; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  BusyFlag& flag_;
};

}  // namespace mudd
