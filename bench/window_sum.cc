// Sum of a plane over ranks of one machine: windows and the tree, MPI_Allreduce, and a copy for scale.
//   mpirun -n 2 --bind-to core build/run/bench/window_sum [MiB [repeats]]
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "mudd/base/isa.h"
#include "mudd/base/parallel.h"
#include "mudd/kernels/reduce/reduce.h"

namespace {

using Clock = std::chrono::steady_clock;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Plane {
  std::vector<float*> parts;                     // of all ranks
  std::vector<std::atomic<uint64_t>*> arrivals;  // of all ranks, before their plane
};

// Memory of all ranks in one window: a cache line for the counter, then the numbers.
Plane shared_plane(int64_t n, int ranks) {
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, "alloc_shared_noncontig", "true");
  void* base = nullptr;
  MPI_Win window;
  MPI_Win_allocate_shared(64 + n * static_cast<int64_t>(sizeof(float)), 1, info, MPI_COMM_WORLD, &base, &window);
  MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
  Plane plane;
  for (int r = 0; r < ranks; ++r) {
    MPI_Aint size = 0;
    int unit = 0;
    MPI_Win_shared_query(window, r, &size, &unit, &base);
    plane.arrivals.push_back(static_cast<std::atomic<uint64_t>*>(base));
    plane.parts.push_back(reinterpret_cast<float*>(static_cast<std::byte*>(base) + 64));
  }
  return plane;
}

void meet(const Plane& plane, int rank, uint64_t round) {
  plane.arrivals[rank]->store(round, std::memory_order_release);
  for (const auto* other : plane.arrivals)
    while (other->load(std::memory_order_acquire) < round) __builtin_ia32_pause();
}

// Median seconds of body(), which all ranks begin together; the slowest rank counts.
template <class Body>
double seconds(int repeats, const Body& body) {
  std::vector<double> times;
  for (int k = 0; k < repeats + 3; ++k) {
    MPI_Barrier(MPI_COMM_WORLD);
    const auto begin = Clock::now();
    body();
    double mine = std::chrono::duration<double>(Clock::now() - begin).count(), slowest = 0;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (k >= 3) times.push_back(slowest);
  }
  return median(times);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t bytes = (argc > 1 ? std::atoll(argv[1]) : 32) << 20;
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 21;
  const int64_t n = bytes / static_cast<int64_t>(sizeof(float));
  MPI_Init(nullptr, nullptr);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  mudd::set_num_threads(1);
  const Plane plane = shared_plane(n, ranks);
  std::fill_n(plane.parts[rank], n, 1.0f);
  std::vector<float> result(static_cast<size_t>(n));
  uint64_t round = 0;
  const int64_t begin = n * rank / ranks, count = n * (rank + 1) / ranks - begin;
  std::vector<const float*> slices;
  for (const float* part : plane.parts) slices.push_back(part + begin);
  const double windows = seconds(repeats, [&] {
    meet(plane, rank, ++round);
    mudd::sum_planes(slices, plane.parts[rank] + begin, count);
    meet(plane, rank, ++round);
  });
  const double copy =
      seconds(repeats, [&] { std::memcpy(result.data() + begin, plane.parts[rank] + begin, count * 4); });
  const double all_reduce = seconds(repeats, [&] {
    MPI_Allreduce(plane.parts[rank], result.data(), static_cast<int>(n), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  });
  if (rank == 0) {
    const double moved = static_cast<double>(bytes) * (ranks + 1), copied = 2.0 * static_cast<double>(bytes);
    std::printf(
        "%d ranks, %lld MiB, isa %s: windows %.2f ms (%.1f GB/s moved), MPI_Allreduce %.2f ms (%.1f times), "
        "copy %.1f GB/s (the sum moves %.2f of it)\n",
        ranks, static_cast<long long>(bytes >> 20), mudd::name_of(mudd::active_isa()), windows * 1e3,
        moved / windows * 1e-9, all_reduce * 1e3, all_reduce / windows, copied / copy * 1e-9,
        moved / windows / (copied / copy));
  }
  MPI_Finalize();
}
