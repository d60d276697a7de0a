// Ranks as threads of one process: for tests, notebooks, and a rank alone.
#pragma once

#include <memory>
#include <vector>

#include "mudd/dist/comm.h"

namespace mudd::dist {

// One Comm for each of `world` ranks, node_size of them a node; each is used by a thread of its own.
// Error unless node_size divides world.
std::vector<std::unique_ptr<Comm>> thread_ranks(int world, int node_size, const CommOptions& options = {});

}  // namespace mudd::dist
