// What only the testing build defines (cpp/testing): null in the product, where the linker leaves nothing of it.
#pragma once

#include <string_view>

#define MUDD_TEST_BUILD [[gnu::weak, gnu::visibility("hidden")]]

namespace mudd::testing {

// Kills the process at the n-th passage of the point that MUDD_KILL_AT=<point>[:n] names.
MUDD_TEST_BUILD void reach(std::string_view point);

inline bool linked() { return &reach != nullptr; }

}  // namespace mudd::testing
