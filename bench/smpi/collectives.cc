// Compares the exchanges of a step, compiled for SMPI (SimGrid), with the formula of docs/scale.md, section 2. Run
// by bench/smpi/run.sh.
#include <mpi.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "mudd/dist/collectives.h"

using namespace mudd::dist;

namespace {

// MPI messages with unused content.
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
    MPI_Wait(&requests_[static_cast<size_t>(request)], MPI_STATUS_IGNORE);  // simulated time advances
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

constexpr int kLayers = 8;

// The state of a simulated rank that runs the exchanges of a step.
struct Cluster {
  Link link;
  double latency, bandwidth;
  int ranks() const { return link.size(); }
  double rounds() const { return std::bit_width(static_cast<unsigned>(ranks() - 1)) * latency; }
  double moved(double bytes) const { return (ranks() - 1.0) / ranks() * bytes / bandwidth; }
};

void finish(Machine& machine) {
  while (!machine.advance()) {
  }
}

std::vector<OwnedRange> pieces_of(int ranks, int64_t numbers) {
  std::vector<OwnedRange> pieces;
  for (int owner = 0; owner < ranks; ++owner)
    pieces.push_back({owner * (numbers / ranks), numbers / ranks, owner});
  return pieces;
}

void sum(const Cluster& c, int64_t bytes) {
  PieceSum machine(c.link, nullptr, pieces_of(c.ranks(), bytes / 4));
  finish(machine);
}

void gather(const Cluster& c, int64_t bytes) {
  PieceGather machine(c.link, nullptr, 4, pieces_of(c.ranks(), bytes / 4));
  finish(machine);
}

// Each rank has `bytes` of rows, the same amount for every rank.
void exchange(const Cluster& c, int64_t bytes) {
  std::vector<Piece> pieces;
  for (int m = 0; m < c.ranks(); ++m)
    if (m != c.link.me) pieces.push_back({m, nullptr, bytes / c.ranks()});
  PieceExchange machine(c.link, pieces, pieces);
  finish(machine);
}

// mesh.zero=3: weights are gathered by layer in both passes, gradients are summed once.
void cut_step(const Cluster& c, int64_t bytes) {
  for (int layer = 0; layer < 2 * kLayers; ++layer) gather(c, bytes / kLayers);
  sum(c, bytes);
}

double cut_seconds(const Cluster& c, int64_t bytes) {
  return (2 * kLayers + 1) * c.rounds() + c.moved(3.0 * static_cast<double>(bytes));
}

// mesh.expert: exchanges row counts, then rows and results of each layer, in both passes.
void expert_step(const Cluster& c, int64_t bytes) {
  for (int layer = 0; layer < kLayers; ++layer) {
    exchange(c, 64 * c.ranks());
    for (int way = 0; way < 4; ++way) exchange(c, bytes / kLayers);
  }
}

double expert_seconds(const Cluster& c, int64_t bytes) {
  return kLayers * 5 * c.latency + c.moved(4.0 * static_cast<double>(bytes));
}

struct Case {
  const char* name;
  void (*run)(const Cluster&, int64_t);
  double (*seconds)(const Cluster&, int64_t);
};

double one_seconds(const Cluster& c, int64_t bytes) { return c.rounds() + c.moved(static_cast<double>(bytes)); }

constexpr Case kCases[] = {{"sum", sum, one_seconds},
                           {"gather", gather, one_seconds},
                           {"zero 3", cut_step, cut_seconds},
                           {"expert", expert_step, expert_seconds}};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int64_t bytes = std::atoll(argv[1]);
  Simulated transport(bytes);
  Cluster cluster{.latency = std::atof(argv[2]), .bandwidth = std::atof(argv[3])};
  cluster.link.transport = &transport;
  for (int r = 0; r < ranks; ++r) cluster.link.ranks.push_back(r);
  cluster.link.me = rank;
  bool close = true;
  for (const Case& one : std::span(kCases).first(std::atoi(argv[4]))) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime(), want = one.seconds(cluster, bytes);
    one.run(cluster, bytes);
    double mine = MPI_Wtime() - start, taken = 0;
    MPI_Allreduce(&mine, &taken, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    close &= taken > 0.8 * want && taken < 1.2 * want;
    if (rank == 0)
      std::printf("%4d ranks  %-6s %10lld bytes  simulated %.6f s  formula %.6f s  ratio %.3f\n", ranks, one.name,
                  static_cast<long long>(bytes), taken, want, taken / want);
  }
  MPI_Finalize();
  return close ? 0 : 1;
}
