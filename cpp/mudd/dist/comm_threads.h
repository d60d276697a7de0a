// Ranks as threads of one process: for tests, notebooks, and a single rank.
#pragma once

#include <memory>
#include <vector>

#include "mudd/dist/comm.h"

namespace mudd::dist {

// Create one Comm for each of `world` ranks, node_size of them on a host; each is used by a separate thread.
// Error unless node_size divides world.
std::vector<std::unique_ptr<Comm>> thread_ranks(int world, int node_size, const CommOptions& options = {});

}  // namespace mudd::dist
