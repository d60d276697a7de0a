// Comm: what the ranks of one run say to each other. The ranks of a node share memory (windows); every sum is made
// by the caller or by sum_between_nodes, in the order of base/shard_tree.h. All ranks make the same collective
// calls in the same order, each from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "mudd/base/name_table.h"
#include "mudd/dist/transport.h"

namespace mudd::dist {

// Another rank has failed, or the job is being aborted: nothing that waits for it can end.
class PeerError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A rank that this one needs has left the job by close(): it will never make the call.
class PeerLeftError : public PeerError {
 public:
  explicit PeerLeftError(int rank)
      : PeerError("[ranks] rank " + std::to_string(rank) + " has left the job, and does not make this call") {}
};

// What a rank is doing; other ranks print it when it fails or hangs.
#define MUDD_PHASES(each)                                                                                   \
  each(idle) each(data) each(forward) each(backward) each(exchange) each(reduce) each(verdict) each(update) \
      each(gather) each(save) each(evaluate)
enum class Phase : uint8_t { MUDD_PHASES(MUDD_MEMBER) };
constexpr const char* kPhaseNames[] = {MUDD_PHASES(MUDD_NAME)};
constexpr int64_t kSameStep = -1;  // of set_phase: that of the call before
const char* name_of(Phase phase);
// The name, with the axis of the mesh where only one has the phase.
std::string text_of(Phase phase);
// A kill point of the testing build: phase_<name>.
void reached(Phase phase);
// The phase of a name; Error if there is none.
Phase parse_phase(const std::string& name);

// Memory of the ranks of a node, a part for each.
class Window {
 public:
  virtual ~Window() = default;
  virtual std::byte* part(int node_rank) const = 0;  // zeros at first; on a cache line
  virtual int64_t bytes(int node_rank) const = 0;
};

// Where a collective was called; compared between ranks in debug mode.
struct Site {
  const char* file;
  int line;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// Elements [offset, offset + length) of a plane, which node `owner` sums.
struct OwnedRange {
  int64_t offset = 0, length = 0;
  int owner = 0;
};

// Bytes for, or from, a member of an exchange.
struct Piece {
  int member = 0;  // number among the members
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

// What left this rank between nodes, for one purpose; of exchanges also what stayed inside the node.
struct Traffic {
  int64_t messages = 0, bytes = 0;
};

// An exchange that goes on while the caller computes.
class Pending {
 public:
  virtual ~Pending() = default;
  virtual bool done() const = 0;
};

struct CommOptions {
  bool debug = false;             // compare call sites of collectives
  double hang_timeout = 0;        // seconds without a sign of life until the job ends with 70; 0: never
  int64_t chunk_bytes = 1 << 30;  // largest message
  std::string facts;              // processes: lines "name=value", equal on all ranks, or the job does not start
  double join_timeout = 60;       // processes: seconds until all ranks must have joined
  // Thread ranks: makes what each rank's transport is wrapped in; for tests.
  std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)> wrap;
};

class Comm {
 public:
  virtual ~Comm() = default;

  virtual int rank() const = 0;
  virtual int world() const = 0;
  // Nodes have equally many ranks, neighbours in rank order.
  virtual int node_size() const = 0;
  int nodes() const { return world() / node_size(); }
  int node() const { return rank() / node_size(); }
  int node_rank() const { return rank() % node_size(); }

  // A window in which this rank has `bytes` (0 and more). All ranks of the node call it.
  virtual std::shared_ptr<Window> window(int64_t bytes) = 0;
  // Bytes of the largest message; longer ones are cut.
  virtual int64_t longest_message() const = 0;
  // Bytes that windows of this node may still take.
  virtual int64_t shared_bytes_free() const = 0;
  // From now on each rank is a node of its own; windows made before stay. All ranks call it.
  virtual void split_nodes() = 0;
  virtual void node_barrier(Site site = Site::here()) = 0;
  virtual void barrier(Site site = Site::here()) = 0;
  // out [world * bytes]: what every rank gave, in rank order. bytes is the same everywhere.
  virtual void all_gather(const void* mine, int64_t bytes, void* out, Site site = Site::here()) = 0;
  // data of rank `root` to all others.
  virtual void broadcast(void* data, int64_t bytes, int root, Site site = Site::here()) = 0;

  // Between rank i of each node and rank i of the others, beside the caller's computation. The pieces are equal
  // on all of them and data stays untouched by the caller until done(), which the caller waits for.
  // sum: this node's pieces become the sum over nodes by the tree; the other pieces are then undefined.
  // row: numbers of a row, where rows of zeros need not be sent and pieces are whole rows; 0: all is sent.
  virtual std::shared_ptr<Pending> sum_between_nodes(float* data, std::span<const OwnedRange> pieces,
                                                     int64_t row = 0) = 0;
  // gather: every piece becomes its owner's. Elements of `width` bytes.
  virtual std::shared_ptr<Pending> gather_between_nodes(void* data, int64_t width,
                                                        std::span<const OwnedRange> pieces) = 0;
  // Among `members`, ascending ranks with this one, on any nodes. All ranks make these calls alike, each with the
  // members of its own set, and the sets have no rank in common.
  // exchange: every piece of `sends` becomes the piece of its receiver, see PieceExchange; one for this rank
  // itself is copied. Returns when all of this rank's pieces are here.
  virtual void exchange(std::span<const int> members, std::span<const Piece> sends,
                        std::span<const Piece> receives, Site site = Site::here()) = 0;
  // As the calls between nodes; the owner of a piece is the number of a member.
  virtual std::shared_ptr<Pending> sum_among(std::span<const int> members, float* data,
                                             std::span<const OwnedRange> pieces) = 0;
  virtual std::shared_ptr<Pending> gather_among(std::span<const int> members, void* data, int64_t width,
                                                std::span<const OwnedRange> pieces) = 0;
  // By purpose: "control", "sum", "gather", "exchange".
  virtual std::map<std::string, Traffic> counters() const = 0;

  // Returns once ready() is true; other ranks make it so. PeerError when one of them has failed.
  template <class Ready>
  void wait(Ready ready) {
    if (ready()) return;
    const Waiting waiting(*this);
    for (int tries = 0; !ready(); ++tries) pause(tries);
  }

  // For messages of other ranks: what this rank does from now on, in which step. A sign of life for the watchdog.
  virtual void set_phase(Phase phase, int64_t step) = 0;
  // The phase of the last call.
  virtual Phase phase() const = 0;
  // From now on ends the job with exit code 70 when a rank of this node gives no sign of life for so many seconds;
  // 0: never.
  virtual void watch(double seconds) = 0;
  // Ends the job with an exit code (1 to 255): all waiting ranks get PeerError. The first call of a job counts.
  // Where ranks are processes it prints the message and does not return.
  virtual void fail(int code, const std::string& message) = 0;
  // Leaves the job in good order, after all files are closed; nothing but counters() may follow.
  // patience: seconds to wait for the other ranks, 0 for ever. False: they did not come, or one has failed.
  // Collective calls of other ranks, and later ones of this rank, throw PeerLeftError.
  virtual bool close(double patience = 0) = 0;

 protected:
  // Between two checks of a condition: spins, then yields, then sleeps, so that more ranks than cores do not
  // crawl. Throws PeerError.
  virtual void pause(int tries) = 0;
  virtual void resume() = 0;

 private:
  struct Waiting {
    explicit Waiting(Comm& comm_) : comm(comm_) {}
    ~Waiting() { comm.resume(); }
    Comm& comm;
  };
};

// A phase inside another one, which goes on afterwards.
class InnerPhase {
 public:
  InnerPhase(Comm& comm, Phase phase) : comm_(comm), outer_(comm.phase()) { comm.set_phase(phase, kSameStep); }
  ~InnerPhase() { comm_.set_phase(outer_, kSameStep); }
  InnerPhase(const InnerPhase&) = delete;
  InnerPhase& operator=(const InnerPhase&) = delete;

 private:
  Comm& comm_;
  Phase outer_;
};

}  // namespace mudd::dist
