// Kill points: the tests of crashes need exact instants.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "mudd/base/test_build.h"

namespace mudd::testing {
namespace {

struct KillPoint {
  KillPoint() {
    const char* asked = std::getenv("MUDD_KILL_AT");
    name = asked == nullptr ? "" : asked;
    const size_t colon = name.find(':');
    if (colon == std::string::npos) return;
    passages_left = std::strtol(name.c_str() + colon + 1, nullptr, 10);
    name.resize(colon);
  }

  std::string name;
  std::atomic<long> passages_left{1};
};

}  // namespace

void reach(std::string_view point) {
  static KillPoint kill_point;
  if (kill_point.name.empty() || kill_point.name != point || --kill_point.passages_left != 0) return;
  std::fprintf(stderr, "MUDD_KILL_AT: killed at %s\n", kill_point.name.c_str());
  ::kill(::getpid(), SIGKILL);
  ::pause();
}

}  // namespace mudd::testing
