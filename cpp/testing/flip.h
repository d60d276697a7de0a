// Flip: plants the smallest fault in a step. It flips the last bit of one element of one value, right after the
// value has been written, and shows all values to another observer.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "mudd/graph/node_observer.h"

namespace mudd {

class Flip final : public NodeObserver {
 public:
  Flip(std::shared_ptr<NodeObserver> inner, StepStage stage, int run, std::string place, std::string value,
       int64_t element)
      : inner_(std::move(inner)),
        stage_(stage),
        run_(run),
        place_(std::move(place)),
        value_(std::move(value)),
        element_(element) {}

  void see(const Observed& value) override {
    if (value.stage == stage_ && value.run == run_ && value.place == place_ && value.value == value_) flip(value);
    if (inner_) inner_->see(value);
  }
  int flipped() const { return flipped_; }

 private:
  void flip(const Observed& value) {
    const Tensor& t = value.tensor;
    if (element_ >= t.rows * t.cols) return;
    // The lowest byte of an element is its first one.
    const int64_t at = element_ / t.cols * t.stride + element_ % t.cols;
    static_cast<std::byte*>(t.data)[at * size_of(t.dtype)] ^= std::byte{1};
    ++flipped_;
  }

  std::shared_ptr<NodeObserver> inner_;
  StepStage stage_;
  int run_;
  std::string place_, value_;
  int64_t element_;
  int flipped_ = 0;
};

}  // namespace mudd
