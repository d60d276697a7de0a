#include "mudd/data/mix_schedule.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>

#include "mudd/base/check.h"

namespace mudd {
namespace {

// A sample of a source that is not placed yet.
struct Open {
  int64_t end;  // of its window
  int32_t source;
  bool operator>(const Open& other) const { return std::tie(end, source) > std::tie(other.end, other.source); }
};

struct Waiting {
  int64_t begin;  // of its window
  int32_t source;
  bool operator>(const Waiting& other) const { return begin > other.begin; }
};

template <typename Item>
using Earliest = std::priority_queue<Item, std::vector<Item>, std::greater<>>;

int64_t window_begin(int64_t count, int64_t weight, int64_t period) { return count * period / weight; }
int64_t window_end(int64_t count, int64_t weight, int64_t period) {
  return ((count + 1) * period + weight - 1) / weight - 1;
}

}  // namespace

MixOrder::MixOrder(std::vector<int64_t> weights) : weights_(std::move(weights)) {
  for (const int64_t weight : weights_) {
    check(weight >= 0 && weight <= std::numeric_limits<int32_t>::max(), "mix",
          "weights: expected integers from 0 to 2147483647, got ", weight);
    period_ += weight;
    check(period_ <= std::numeric_limits<int32_t>::max(), "mix", "weights: expected a sum of at most 2147483647");
  }
  check(period_ >= 1, "mix", "weights: expected a sum of at least 1, got 0");
  starts_.emplace_back(weights_.size(), 0);
}

void MixOrder::compute(int64_t block) {
  const int64_t first = block * kBlock, last = std::min(first + kBlock, period_);
  std::vector<int64_t> counts = starts_[static_cast<size_t>(block)];
  Earliest<Open> open;
  Earliest<Waiting> waiting;
  for (size_t k = 0; k < weights_.size(); ++k)
    if (weights_[k] > 0) waiting.push({window_begin(counts[k], weights_[k], period_), static_cast<int32_t>(k)});
  sources_.resize(static_cast<size_t>(last - first));
  indices_.resize(sources_.size());
  for (int64_t n = first; n < last; ++n) {
    for (; !waiting.empty() && waiting.top().begin <= n; waiting.pop()) {
      const size_t k = static_cast<size_t>(waiting.top().source);
      open.push({window_end(counts[k], weights_[k], period_), waiting.top().source});
    }
    check(!open.empty() && open.top().end >= n, "mix", "sample ", n, ": no source fits");
    const int32_t source = open.top().source;
    open.pop();
    const size_t k = static_cast<size_t>(source), at = static_cast<size_t>(n - first);
    sources_[at] = static_cast<uint16_t>(source);
    indices_[at] = static_cast<int32_t>(counts[k]++);
    if (counts[k] < weights_[k]) waiting.push({window_begin(counts[k], weights_[k], period_), source});
  }
  opened_ = block;
  if (last < period_ && static_cast<size_t>(block) + 1 == starts_.size()) starts_.push_back(std::move(counts));
}

void MixOrder::open(int64_t block) {
  while (static_cast<size_t>(block) >= starts_.size()) compute(static_cast<int64_t>(starts_.size()) - 1);
  if (opened_ != block) compute(block);
}

MixPlace MixOrder::place(int64_t sample) {
  const int64_t turn = sample / period_, n = sample % period_;
  open(n / kBlock);
  const size_t at = static_cast<size_t>(n % kBlock);
  const int32_t source = sources_[at];
  return {source, turn * weights_[static_cast<size_t>(source)] + indices_[at]};
}

void MixOrder::add_counts(int64_t samples, std::vector<int64_t>& counts) {
  const int64_t turn = samples / period_, n = samples % period_;
  for (size_t k = 0; k < weights_.size(); ++k) counts[k] += turn * weights_[k];
  if (n == 0) return;
  open(n / kBlock);
  const std::vector<int64_t>& start = starts_[static_cast<size_t>(n / kBlock)];
  for (size_t k = 0; k < weights_.size(); ++k) counts[k] += start[k];
  for (size_t at = 0; at < static_cast<size_t>(n % kBlock); ++at) ++counts[sources_[at]];
}

MixSchedule::MixSchedule(std::vector<MixPhase> phases) {
  check(!phases.empty() && phases[0].first_sample == 0, "mix", "phases: expected the first one from sample 0");
  n_sources_ = static_cast<int64_t>(phases[0].weights.size());
  check(n_sources_ >= 1 && n_sources_ <= std::numeric_limits<uint16_t>::max(), "mix",
        "sources: expected 1 to 65535, got ", n_sources_);
  for (MixPhase& phase : phases) {
    check(static_cast<int64_t>(phase.weights.size()) == n_sources_, "mix", "phases: expected ", n_sources_,
          " weights in each, got ", phase.weights.size());
    std::vector<int64_t> before(static_cast<size_t>(n_sources_), 0);
    if (!phases_.empty()) {
      Counted& last = phases_.back();
      check(phase.first_sample > last.first_sample, "mix", "phases: expected ascending samples, got ",
            phase.first_sample, " after ", last.first_sample);
      before = last.before;
      last.order.add_counts(phase.first_sample - last.first_sample, before);
    }
    phases_.push_back({phase.first_sample, std::move(before), MixOrder(std::move(phase.weights))});
  }
}

MixSchedule::Counted& MixSchedule::phase_of(int64_t sample) {
  check(sample >= 0, "mix", "sample: expected at least 0, got ", sample);
  const auto after = [](int64_t value, const Counted& phase) { return value < phase.first_sample; };
  return *std::prev(std::upper_bound(phases_.begin(), phases_.end(), sample, after));
}

MixPlace MixSchedule::place(int64_t sample) {
  Counted& phase = phase_of(sample);
  MixPlace found = phase.order.place(sample - phase.first_sample);
  found.index += phase.before[static_cast<size_t>(found.source)];
  return found;
}

std::vector<int64_t> MixSchedule::counts(int64_t samples) {
  Counted& phase = phase_of(samples);
  std::vector<int64_t> found = phase.before;
  phase.order.add_counts(samples - phase.first_sample, found);
  return found;
}

}  // namespace mudd
