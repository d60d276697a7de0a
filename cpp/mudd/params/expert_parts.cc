#include "mudd/params/expert_parts.h"

#include "mudd/params/units.h"

namespace mudd {

// Assign a unit to the holder whose even part contains its middle.
ExpertParts::ExpertParts(const Declarations& parameters, const dist::ExpertGroup* group,
                         const WholeMatrices& whole) {
  if (!group) return;
  rank_ = group->rank();
  parts_.resize(static_cast<size_t>(parameters.count()));
  for (int i = 0; i < parameters.count(); ++i) {
    const Parameter& p = parameters.at(i);
    if (!is_dealt(group, p)) continue;
    const int64_t held = p.size() / group->ranks();
    const bool by_matrix = whole(p);
    parts_[i].resize(static_cast<size_t>(group->world()));
    for (int member = 0; member < group->ranks(); ++member) {
      int64_t at = member * held;
      for (int holder = 0; holder < group->holders(); ++holder) {
        const int64_t begin = at;
        while (at < (member + 1) * held) {
          const int64_t end = next_border(p, at, by_matrix);
          if ((at + end - 2 * member * held) * group->holders() >= 2 * held * (holder + 1)) break;
          at = end;
        }
        parts_[i][static_cast<size_t>(holder * group->ranks() + member)] = {i, begin, at};
      }
    }
  }
}

}  // namespace mudd
