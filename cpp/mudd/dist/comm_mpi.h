// Ranks as processes under Open MPI. comm_mpi.cc is the only file that includes mpi.h; it is built into the
// module _mpi, never into _core.
#pragma once

#include <cstdint>
#include <memory>

#include "mudd/dist/transport.h"

namespace mudd::dist {

struct MpiOptions {
  bool rank_is_node = false;        // treat every rank as a separate host
  int64_t shared_bytes = 64 << 20;  // shared memory that a host needs; with less, every rank is a separate host
};

std::unique_ptr<Transport> mpi_transport(const MpiOptions& options);

}  // namespace mudd::dist
