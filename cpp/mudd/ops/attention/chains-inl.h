// Strips of a matmul at levels that compute a multiply-add in double (base/simd/chains.h): B is converted once,
// A once a strip. At other levels a class that does nothing. Included by matmul-inl.h only.
#pragma once

#include "mudd/base/simd/chains.h"

namespace mudd::MUDD_ISA {
namespace {

template <class U>
struct StripChains {
  explicit StripChains(const Matmul&) {}
  template <bool kTurned>
  void read_strip(const Matmul&, int64_t, int64_t, int64_t) {}
  bool sum(int64_t, int, int64_t, int64_t) { return false; }
  const float* sums() const { return nullptr; }
};

#if defined(MUDD_CHAINS)
static_assert(kStrip == kChainRows && kPanel * kL == kChainColumns);

template <>
class StripChains<Wide> {
 public:
  explicit StripChains(const Matmul& p) : used_(p.depth <= kChainDepth && p.cols <= kColumns && p.rows >= kStrip) {
    if (!used_) return;
    for (int64_t j = 0; j < p.cols; j += 4) {
      Right& to = right_[j / kChainColumns];
      Steps& exact = to.exact[j / 4 % 2] = {};
      for (int64_t s = 0; s < p.depth; ++s)
        write_right_step(p.b + s * p.ldb + j, s, to.numbers + j % kChainColumns, &exact);
    }
  }

  // Convert elements [begin, end) of rows i .. i + 3 of A.
  template <bool kTurned>
  void read_strip(const Matmul& p, int64_t i, int64_t begin, int64_t end) {
    if (!used_) return;
    exact_ = {};
    if constexpr (kTurned) {
      for (int64_t s = begin; s < end; ++s) write_left_step(p.a + s * p.lda + i, s, left_, &exact_);
    } else {
      for (int r = 0; r < kStrip; ++r) write_left_row(p.a + (i + r) * p.lda, end, left_ + 2 * r, &exact_);
    }
  }

  // Compute the chains over [begin, end) of `columns` columns from j. Return true if sums() contains them.
  bool sum(int64_t j, int columns, int64_t begin, int64_t end) {
    if (!used_ || credit_.spent()) return false;
    const Right& b = right_[j / kChainColumns];
    return credit_.count(sum_tile(begin, end, left_, exact_, b.numbers, b.exact, columns, nullptr, 0, sums_));
  }
  const float* sums() const { return sums_; }

 private:
  static constexpr int64_t kColumns = 128;
  struct Right {
    alignas(64) double numbers[kChainDepth * kRightStep];
    Steps exact[2];
  };

  bool used_;
  TileCredit credit_;
  Steps exact_;
  alignas(64) double left_[kChainDepth * kLeftStep];
  alignas(64) float sums_[kChainRows * kChainColumns];
  Right right_[kColumns / kChainColumns];
};
#endif

}  // namespace
}  // namespace mudd::MUDD_ISA
