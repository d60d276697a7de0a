#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "mudd/base/check.h"
#include "mudd/dist/comm.h"

namespace mudd::dist {
namespace {

constexpr const char* kNames[kPhases] = {"idle",    "data",   "forward", "backward", "reduce",
                                         "verdict", "update", "gather",  "save",     "evaluate"};

struct KillPoint {
  KillPoint() {
    const char* asked = std::getenv("MUDD_KILL_AT");
    const std::string text = asked == nullptr ? "" : asked;
    if (!text.starts_with(kPrefix)) return;
    const size_t colon = text.find(':');
    name = text.substr(kPrefix.size(), colon == std::string::npos ? colon : colon - kPrefix.size());
    if (colon != std::string::npos) passages_left = std::strtol(text.c_str() + colon + 1, nullptr, 10);
  }

  static constexpr std::string_view kPrefix = "phase_";
  std::string name;
  std::atomic<long> passages_left{1};
};

}  // namespace

void reached(Phase phase) {
  static KillPoint point;
  if (point.name.empty() || point.name != name_of(phase) || --point.passages_left != 0) return;
  std::fprintf(stderr, "MUDD_KILL_AT: killed at phase_%s\n", point.name.c_str());
  ::kill(::getpid(), SIGKILL);
  ::pause();
}

const char* name_of(Phase phase) { return kNames[static_cast<int>(phase)]; }

Phase parse_phase(const std::string& name) {
  for (int i = 0; i < kPhases; ++i)
    if (name == kNames[i]) return static_cast<Phase>(i);
  fail("ranks", "phase: expected idle, data, forward, backward, reduce, verdict, update, gather, save or evaluate",
       ", got '", name, "'");
}

}  // namespace mudd::dist
