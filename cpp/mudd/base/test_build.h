// Functions that only the testing build defines (cpp/testing): null otherwise, and removed by the linker.
#pragma once

#include <string_view>

#define MUDD_TEST_BUILD [[gnu::weak, gnu::visibility("hidden")]]

namespace mudd::testing {

// Kill the process at the n-th passage of the point that MUDD_KILL_AT=<point>[:n] names.
MUDD_TEST_BUILD void reach(std::string_view point);

inline bool linked() { return &reach != nullptr; }

}  // namespace mudd::testing
