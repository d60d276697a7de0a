// The exchanges of a step compiled for SMPI (SimGrid), against the formula of docs/scale.md, 2: bench/smpi/run.sh.
#include <mpi.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "mudd/dist/collectives.h"

using namespace mudd::dist;

namespace {

// Messages of MPI whose content nobody reads.
class Simulated final : public Transport {
 public:
  explicit Simulated(int64_t most) : out_(static_cast<size_t>(most)), in_(static_cast<size_t>(most)) {}
  RankPlace open() override { return {}; }
  RankPlace find_node() override { return {}; }
  Request isend(const void*, int64_t bytes, int to, int tag) override {
    MPI_Request made;
    MPI_Isend(out_.data(), static_cast<int>(bytes), MPI_BYTE, to, tag, MPI_COMM_WORLD, &made);
    requests_.push_back(made);
    return static_cast<Request>(std::ssize(requests_)) - 1;
  }
  Request irecv(void*, int64_t bytes, int from, int tag) override {
    MPI_Request made;
    MPI_Irecv(in_.data(), static_cast<int>(bytes), MPI_BYTE, from, tag, MPI_COMM_WORLD, &made);
    requests_.push_back(made);
    return static_cast<Request>(std::ssize(requests_)) - 1;
  }
  bool test(Request request) override {
    MPI_Wait(&requests_[static_cast<size_t>(request)], MPI_STATUS_IGNORE);  // simulated time goes on
    return true;
  }
  bool window(int64_t, WindowMemory&) override { return true; }
  void split_nodes() override {}
  void abort(int code, const std::string&) override { MPI_Abort(MPI_COMM_WORLD, code); }
  bool close() override { return true; }
  bool failure(std::string*) const override { return false; }
  bool wants_own_thread() const override { return false; }

 private:
  std::vector<std::byte> out_, in_;
  std::vector<MPI_Request> requests_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int64_t plane = std::atoll(argv[1]), part = plane / 4 / ranks;
  const double latency = std::atof(argv[2]), bandwidth = std::atof(argv[3]);
  std::vector<OwnedRange> pieces;
  for (int owner = 0; owner < ranks; ++owner) pieces.push_back({owner * part, part, owner});
  Simulated transport(plane);
  Link link;
  link.transport = &transport;
  for (int r = 0; r < ranks; ++r) link.ranks.push_back(r);
  link.me = rank;
  const double rounds = std::bit_width(static_cast<unsigned>(ranks - 1));
  const double want = rounds * latency + (ranks - 1.0) / ranks * static_cast<double>(plane) / bandwidth;
  bool close = true;
  for (const char* name : {"sum", "gather"}) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    PieceSum sum(link, nullptr, pieces);
    PieceGather gather(link, nullptr, 4, pieces);
    Machine& machine = name[0] == 's' ? static_cast<Machine&>(sum) : gather;
    while (!machine.advance()) {
    }
    double mine = MPI_Wtime() - start, taken = 0;
    MPI_Allreduce(&mine, &taken, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    close &= taken > 0.8 * want && taken < 1.2 * want;
    if (rank == 0)
      std::printf("%4d ranks  %-6s %10lld bytes  simulated %.6f s  formula %.6f s  ratio %.3f\n", ranks, name,
                  static_cast<long long>(plane), taken, want, taken / want);
  }
  MPI_Finalize();
  return close ? 0 : 1;
}
