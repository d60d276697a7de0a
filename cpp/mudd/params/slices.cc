#include "mudd/params/slices.h"

#include <algorithm>

#include "mudd/base/check.h"
#include "mudd/params/units.h"

namespace mudd {
namespace {

// Elements from which a group of adjacent parameters is divided: 4 MiB of fp32.
constexpr int64_t kGroup = 1 << 20;

int64_t largest_unit(const Parameter& p, bool whole) {
  int64_t largest = 0;
  for (int64_t at = 0; at < p.size();) {
    const int64_t end = next_border(p, at, whole);
    largest = std::max(largest, end - at);
    at = end;
  }
  return largest;
}

}  // namespace

Slices::Slices(int parameters, int owners)
    : owners_(owners),
      borders_(static_cast<size_t>(parameters), std::vector<int64_t>(static_cast<size_t>(owners) + 1, 0)) {
  check(owners >= 1, "slices", "owners: expected 1 or more, got ", owners);
}

Slices::Slices(const Declarations& parameters, int owners, const WholeMatrices& whole,
               const std::function<bool(const Parameter&)>& left_out)
    : Slices(parameters.count(), owners) {
  std::vector<int> group;
  int64_t elements = 0, unit = 0;
  for (int i = 0; i < parameters.count(); ++i) {
    const Parameter& p = parameters.at(i);
    if (left_out && left_out(p)) continue;
    const int64_t own = largest_unit(p, whole(p));
    if (own * owners <= p.size()) {
      share_out(parameters, {i}, whole);
      continue;
    }
    group.push_back(i);
    elements += p.size();
    unit = std::max(unit, own);
    if (elements < std::max(kGroup, unit * owners)) continue;
    share_out(parameters, group, whole);
    group.clear();
    elements = unit = 0;
  }
  share_out(parameters, group, whole);
}

void Slices::share_out(const Declarations& parameters, const std::vector<int>& members,
                       const WholeMatrices& whole) {
  int64_t all = 0, before = 0;
  for (int i : members) all += parameters.at(i).size();
  for (int i : members) {
    const Parameter& p = parameters.at(i);
    const bool by_matrix = whole(p);
    std::vector<int64_t>& borders = borders_[i];
    int64_t at = 0;
    for (int owner = 0; owner < owners_; ++owner) {
      borders[owner] = at;
      while (at < p.size()) {
        const int64_t end = next_border(p, at, by_matrix);
        if ((2 * before + at + end) * owners_ >= 2 * all * (owner + 1)) break;
        at = end;
      }
    }
    borders[owners_] = p.size();
    before += p.size();
  }
}

}  // namespace mudd
