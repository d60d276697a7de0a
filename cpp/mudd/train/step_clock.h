// StepClock: divides the wall time of a step among its stages. Each moment counts once: while this process waits
// for others, the time counts as messages, whatever stage the wait interrupts.
#pragma once

#include <algorithm>

#include "mudd/base/steady_seconds.h"
#include "mudd/train/gradient_sync.h"

namespace mudd {

// The seconds of a step. All members but `hidden` add up to its wall time.
struct StepSeconds {
  double data = 0, forward = 0, backward = 0, update = 0, messages = 0;
  double hidden = 0;  // with messages in transit while this process did not wait
};

class StepClock {
 public:
  using Now = double (*)();

  explicit StepClock(const GradientSync& sync, Now now = steady_seconds) : sync_(sync), now_(now) {}

  void start() {
    seconds_ = {};
    last_ = now_();
    waited_ = sync_.waited_seconds();
    hidden_ = sync_.hidden_seconds();
  }

  // Count the time since the last call for this stage.
  void lap(double StepSeconds::* stage) {
    const double now = now_(), waited = sync_.waited_seconds();
    const double messages = std::min(waited - waited_, now - last_);
    seconds_.messages += messages;
    seconds_.*stage += now - last_ - messages;
    seconds_.hidden = std::max(0.0, sync_.hidden_seconds() - hidden_);
    last_ = now;
    waited_ = waited;
  }

  const StepSeconds& seconds() const { return seconds_; }

 private:
  const GradientSync& sync_;
  Now now_;
  StepSeconds seconds_;
  double last_ = 0, waited_ = 0, hidden_ = 0;
};

}  // namespace mudd
