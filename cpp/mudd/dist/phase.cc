#include <string>

#include "mudd/base/name_table.h"
#include "mudd/base/test_build.h"
#include "mudd/dist/comm.h"

namespace mudd::dist {
namespace {

constexpr const char* kNames[kPhases] = {"idle",    "data",   "forward", "backward", "exchange", "reduce",
                                         "verdict", "update", "gather",  "save",     "evaluate"};

}  // namespace

void reached(Phase phase) {
  if (testing::linked()) testing::reach(std::string("phase_") + name_of(phase));
}

const char* name_of(Phase phase) { return kNames[static_cast<int>(phase)]; }

Phase parse_phase(const std::string& name) {
  return static_cast<Phase>(position_of(kNames, name, "ranks", "phase"));
}

}  // namespace mudd::dist
