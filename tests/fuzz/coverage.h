// Edges of the instrumented code (-fsanitize-coverage=trace-pc) that runs have taken.
#pragma once

#include <cstddef>

namespace fuzz {

void start_coverage();  // of one run
bool end_coverage();    // whether the run took an edge, or took one so often, that no run before it did
std::size_t edges_reached();

}  // namespace fuzz
