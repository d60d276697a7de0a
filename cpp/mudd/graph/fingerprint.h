// Observers of a step: Fingerprint keeps a digest and some samples of each value, Values copies chosen values.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mudd/graph/digest.h"
#include "mudd/graph/node_observer.h"

namespace mudd {

constexpr int kSamples = 8;

class Fingerprint final : public NodeObserver {
 public:
  struct DigestLine {
    Observed value;  // its tensor has no memory any more
    Digest digest;
    std::vector<double> samples;  // at equal distances from the first to the last element, kSamples at most
    std::vector<uint64_t> rows;   // data: half of the digest of each sequence
  };

  void see(const Observed& value) override;
  const std::vector<DigestLine>& lines() const { return lines_; }

 private:
  std::vector<DigestLine> lines_;
};

class Values final : public NodeObserver {
 public:
  struct Wanted {
    StepStage stage = StepStage::forward;
    int run = 0;
    std::string place, value;
  };
  struct Kept {
    Observed value;
    std::vector<std::byte> bytes;  // all elements, row by row
  };

  // inner: sees all values too; null: none.
  explicit Values(std::vector<Wanted> wanted, std::shared_ptr<NodeObserver> inner = nullptr)
      : wanted_(std::move(wanted)), inner_(std::move(inner)) {}
  void see(const Observed& value) override;
  const std::vector<Kept>& kept() const { return kept_; }  // in the order of the step

 private:
  std::vector<Wanted> wanted_;
  std::shared_ptr<NodeObserver> inner_;
  std::vector<Kept> kept_;
};

}  // namespace mudd
