// Compares the sum of a plane over the ranks of a node, from shared-memory window to window, with MPI_Allreduce of
// the same plane and with plain copies, in turn; rank 0 prints one JSON object of medians.
//   mpirun -n 2 --bind-to core build/run/bench/window_sum [MiB [rounds]]
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "mudd/kernels/reduce/reduce.h"

namespace {

// The planes of all ranks in shared memory.
std::vector<float*> windows(int ranks, int64_t n) {
  float* mine = nullptr;
  MPI_Win window;
  MPI_Win_allocate_shared(n * static_cast<int64_t>(sizeof(float)), sizeof(float), MPI_INFO_NULL, MPI_COMM_WORLD,
                          &mine, &window);
  std::vector<float*> parts(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    MPI_Aint bytes = 0;
    int unit = 0;
    MPI_Win_shared_query(window, r, &bytes, &unit, &parts[static_cast<size_t>(r)]);
  }
  return parts;
}

// Returns the seconds of `body` on the slowest rank.
template <class Body>
double seconds(Body body) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  body();
  MPI_Barrier(MPI_COMM_WORLD);
  return MPI_Wtime() - start;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 40;
  const int64_t n = (argc > 1 ? std::atoll(argv[1]) : 32) << 18;
  const auto bytes = static_cast<double>(n * static_cast<int64_t>(sizeof(float)));
  const std::vector<float*> planes = windows(ranks, n);
  std::vector<float> total(static_cast<size_t>(n)), copy(static_cast<size_t>(n));
  float* mine = planes[static_cast<size_t>(rank)];
  const int64_t begin = n * rank / ranks, end = n * (rank + 1) / ranks;
  std::vector<const float*> slices(planes.begin(), planes.end());
  for (const float*& slice : slices) slice += begin;

  std::vector<double> ours, theirs, copies;
  bool equal = true;
  for (int round = 0; round < rounds + 5; ++round) {
    std::fill(mine, mine + n, static_cast<float>(rank + 1));
    theirs.push_back(seconds(
        [&] { MPI_Allreduce(mine, total.data(), static_cast<int>(n), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }));
    copies.push_back(
        seconds([&] { std::memcpy(copy.data(), total.data(), static_cast<size_t>(n) * sizeof(float)); }));
    ours.push_back(seconds([&] { mudd::sum_planes(slices, mine + begin, end - begin); }));
    for (int r = 0; r < ranks; ++r) {  // the others read it there, in its owner's window
      const int64_t first = n * r / ranks, last = n * (r + 1) / ranks;
      equal &= std::equal(planes[static_cast<size_t>(r)] + first, planes[static_cast<size_t>(r)] + last,
                          total.begin() + first);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  for (auto* times : {&ours, &theirs, &copies}) times->erase(times->begin(), times->begin() + 5);
  if (rank == 0) {
    const double window_s = median(ours), all_s = median(theirs), copy_s = median(copies);
    std::printf(
        "{\"mib\": %.0f, \"ranks\": %d, \"rounds\": %d, \"equal\": %s, \"window_ms\": %.4f, \"allreduce_ms\": "
        "%.4f, "
        "\"window_gb_s\": %.3f, \"copy_gb_s\": %.3f}\n",
        bytes / (1 << 20), ranks, rounds, equal ? "true" : "false", 1e3 * window_s, 1e3 * all_s,
        (ranks + 1) * bytes / window_s / 1e9, 2 * ranks * bytes / copy_s / 1e9);
  }
  MPI_Finalize();
  return equal ? 0 : 1;
}
