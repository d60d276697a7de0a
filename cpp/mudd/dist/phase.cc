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
  std::string known;
  for (int i = 0; i < kPhases; ++i) {
    if (name == kNames[i]) return static_cast<Phase>(i);
    known += (i == 0 ? "" : ", ") + std::string(kNames[i]);
  }
  fail("ranks", "phase: expected ", known, ", got '", name, "'");
}

}  // namespace mudd::dist
