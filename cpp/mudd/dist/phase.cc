#include <string>

#include "mudd/base/check.h"
#include "mudd/base/test_build.h"
#include "mudd/dist/comm.h"

namespace mudd::dist {
namespace {

constexpr const char* kNames[kPhases] = {"idle",    "data",   "forward", "backward", "reduce",
                                         "verdict", "update", "gather",  "save",     "evaluate"};

}  // namespace

void reached(Phase phase) {
  if (testing::linked()) testing::reach(std::string("phase_") + name_of(phase));
}

const char* name_of(Phase phase) { return kNames[static_cast<int>(phase)]; }

Phase parse_phase(const std::string& name) {
  for (int i = 0; i < kPhases; ++i)
    if (name == kNames[i]) return static_cast<Phase>(i);
  fail("ranks", "phase: expected idle, data, forward, backward, reduce, verdict, update, gather, save or evaluate",
       ", got '", name, "'");
}

}  // namespace mudd::dist
