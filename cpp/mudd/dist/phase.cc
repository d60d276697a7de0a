#include <string>

#include "mudd/base/test_build.h"
#include "mudd/dist/comm.h"

namespace mudd::dist {

void reached(Phase phase) {
  if (testing::linked()) testing::reach(std::string("phase_") + name_of(phase));
}

const char* name_of(Phase phase) { return kPhaseNames[static_cast<int>(phase)]; }

std::string text_of(Phase phase) {
  const char* axis = phase == Phase::exchange                           ? ", mesh.expert"
                     : phase == Phase::reduce || phase == Phase::gather ? ", mesh.fsdp"
                                                                        : "";
  return std::string(name_of(phase)) + axis;
}

Phase parse_phase(const std::string& name) {
  return static_cast<Phase>(position_of(kPhaseNames, name, "ranks", "phase"));
}

}  // namespace mudd::dist
