// The stages of a step: totals, verdict, clipping.
#include "mudd/train/step.h"

#include <cmath>

#include "compare.h"
#include "mudd/base/check.h"

using namespace mudd;
using namespace mudd::test;

namespace {

StepTotals totals() {
  StepTotals t;
  t.loss = 12;
  t.count = 6;
  t.aux = 3;
  t.slots = 10;
  t.least_count = 2;
  t.most_count = 4;
  t.norm_squares = {100.0, 44.0};
  return t;
}

}  // namespace

TEST_CASE("the verdict follows from the totals alone") {
  const StepReport valid = judge(totals(), Normalize::valid, {});
  CHECK(valid.accepted());
  CHECK(valid.denominator == 6);
  CHECK(valid.loss == 15.0 / 6);
  CHECK(valid.aux_loss == 0.5);
  CHECK(valid.grad_norm == 2);
  CHECK(judge(totals(), Normalize::all_slots, {}).denominator == 10);
  CHECK_THROWS_AS(judge(totals(), Normalize::micro_mean, {}), Error);
  StepTotals even = totals();
  even.least_count = 4;
  CHECK(judge(even, Normalize::micro_mean, {}).denominator == 6);
  StepTotals means = totals();
  means.means = true;
  CHECK(judge(means, Normalize::micro_mean, {}).denominator == 10);
  CHECK(judge(means, Normalize::valid, {}).denominator == 6);
  StepTotals none = totals();
  none.count = 0;
  CHECK(judge(none, Normalize::valid, {}).denominator == 1);
}

TEST_CASE("a stop, a number that is not finite and a spike are no update") {
  StepTotals stopped = totals();
  stopped.stop = true;
  CHECK(judge(stopped, Normalize::valid, {}).stopped);
  CHECK_FALSE(judge(stopped, Normalize::valid, {}).accepted());
  for (double bad : {NAN, INFINITY}) {
    StepTotals t = totals();
    t.norm_squares[1] = bad;
    const StepReport report = judge(t, Normalize::valid, {.loss = 0, .grad_norm = 0});
    CHECK_FALSE(report.finite);
    CHECK_FALSE(report.spike);
    CHECK_FALSE(report.accepted());
  }
  CHECK(judge(totals(), Normalize::valid, {.loss = 2.4}).spike);
  CHECK(judge(totals(), Normalize::valid, {.grad_norm = 1.9}).spike);
  CHECK_FALSE(judge(totals(), Normalize::valid, {.loss = 2.5, .grad_norm = 2}).spike);
}

TEST_CASE("clipping brings the norm down to its limit and never up") {
  CHECK(clip_factor(0.5, 1) == 1);
  CHECK(clip_factor(4, 0) == 1);
  CHECK(std::fabs(4 * clip_factor(4, 1) - 1) < 1e-6);
  CHECK(clip_factor(0, 1) == 1);
}

TEST_CASE("clearing the totals keeps the memory of metrics and blocks") {
  StepTotals t = totals();
  t.metrics = {1, 2};
  t.stop = true;
  t.clear();
  CHECK(t.metrics == std::vector<double>{0, 0});
  CHECK(t.norm_squares.size() == 2);
  CHECK_FALSE(t.stop);
  CHECK(t.loss + t.count + t.aux + t.slots + t.least_count + t.most_count == 0);
  t.add_count(5, true);
  t.add_count(3, false);
  CHECK(t.least_count == 3);
  CHECK(t.most_count == 5);
}
