// Comm: the communication between the ranks of a run. The ranks of a host share memory (windows). The caller or
// sum_between_nodes computes every sum, in the order of base/shard_tree.h. All ranks make the same collective
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
#include "mudd/base/steady_seconds.h"
#include "mudd/dist/transport.h"

namespace mudd::dist {

// Another rank has failed, or the job is being aborted: waiting for it cannot end.
class PeerError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A rank that this one needs has left the job by close(): it will never make the call.
class PeerLeftError : public PeerError {
 public:
  explicit PeerLeftError(int rank)
      : PeerError("[ranks] rank " + std::to_string(rank) + " has left the job and does not make this call") {}
};

// The activity of a rank, which other ranks print when it fails or hangs.
#define MUDD_PHASES(each)                                                                                   \
  each(idle) each(data) each(forward) each(backward) each(exchange) each(reduce) each(verdict) each(update) \
      each(gather) each(save) each(evaluate)
enum class Phase : uint8_t { MUDD_PHASES(MUDD_MEMBER) };
constexpr const char* kPhaseNames[] = {MUDD_PHASES(MUDD_NAME)};
constexpr int64_t kSameStep = -1;  // for set_phase: the step of the previous call
const char* name_of(Phase phase);
// Return the name, with the axis of the mesh if only one axis has the phase.
std::string text_of(Phase phase);
// A kill point of the testing build: phase_<name>.
void reached(Phase phase);
// Return the phase of a name; Error if there is none.
Phase parse_phase(const std::string& name);

// Shared memory of the ranks of a host, with a part for each rank.
class Window {
 public:
  virtual ~Window() = default;
  virtual std::byte* part(int node_rank) const = 0;  // zeroed and cache-line aligned
  virtual int64_t bytes(int node_rank) const = 0;
};

// The call site of a collective, compared between ranks in debug mode.
struct Site {
  const char* file;
  int line;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// Elements [offset, offset + length) of a flat buffer, which host `owner` sums.
struct OwnedRange {
  int64_t offset = 0, length = 0;
  int owner = 0;
};

// The form of the gradients in the messages of a sum. narrow: as bf16 by cut_bf16 with `offset`, which every
// member also applies to its own values before it adds, so that the sum depends only on the number of members.
struct Wire {
  bool narrow = false;
  int32_t offset = 0;
  int64_t width() const { return narrow ? 2 : 4; }  // bytes of a value
};

// Bytes to, or from, a member of an exchange.
struct Piece {
  int member = 0;  // index among the members
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

// The traffic of this rank between hosts for one purpose; for exchanges, also inside the host.
struct Traffic {
  int64_t messages = 0, bytes = 0;
};

// An exchange in progress while the caller computes.
class Pending {
 public:
  virtual ~Pending() = default;
  virtual bool done() const = 0;
};

struct CommOptions {
  bool debug = false;             // compare call sites of collectives
  double hang_timeout = 0;        // seconds without a sign of life before the job exits with code 70; 0: never
  int64_t chunk_bytes = 1 << 30;  // largest message
  std::string facts;              // processes: lines "name=value"; if ranks differ, the job does not start
  double join_timeout = 60;       // processes: seconds for all ranks to join
  // Thread ranks: wraps each rank's transport; for tests.
  std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)> wrap;
};

class Comm {
 public:
  virtual ~Comm() = default;

  virtual int rank() const = 0;
  virtual int world() const = 0;
  // Return the rank count of each host, equal on all; ranks of a host are adjacent.
  virtual int node_size() const = 0;
  int nodes() const { return world() / node_size(); }
  int node() const { return rank() / node_size(); }
  int node_rank() const { return rank() % node_size(); }

  // Create a window with `bytes` (0 and more) of this rank. All ranks of the host call it.
  virtual std::shared_ptr<Window> window(int64_t bytes) = 0;
  // Return the bytes of the largest message; longer ones are split.
  virtual int64_t longest_message() const = 0;
  // Return the bytes that windows of this host may still allocate.
  virtual int64_t shared_bytes_free() const = 0;
  // Treat each rank as a separate host; existing shared-memory windows stay valid. All ranks call it.
  virtual void split_nodes() = 0;
  virtual void node_barrier(Site site = Site::here()) = 0;
  virtual void barrier(Site site = Site::here()) = 0;
  // Collect out [world * bytes] from all ranks, in rank order. bytes is equal on all ranks.
  virtual void all_gather(const void* mine, int64_t bytes, void* out, Site site = Site::here()) = 0;
  // Send data of rank `root` to all others.
  virtual void broadcast(void* data, int64_t bytes, int root, Site site = Site::here()) = 0;

  // Between rank i of each host and rank i of the others, during the caller's computation. The pieces are equal
  // on all of them. The caller must not touch data until done(), and waits for done(). sum: this host's pieces
  // become the sum over hosts by the tree; the other pieces are then undefined. row: elements of a row, if rows
  // of zeros can be omitted and pieces are whole rows; 0: send all.
  virtual std::shared_ptr<Pending> sum_between_nodes(float* data, std::span<const OwnedRange> pieces,
                                                     int64_t row = 0, const Wire& wire = {}) = 0;
  // gather: receive every piece from its owner. Elements of `width` bytes.
  virtual std::shared_ptr<Pending> gather_between_nodes(void* data, int64_t width,
                                                        std::span<const OwnedRange> pieces) = 0;
  // Among `members`, ascending ranks with this one, on any hosts. All ranks make these calls alike, each with
  // the members of its set, and the sets are disjoint. exchange: send every piece of `sends` to its receiver,
  // see PieceExchange; a piece for this rank is copied. Returns when all of this rank's pieces have arrived.
  virtual void exchange(std::span<const int> members, std::span<const Piece> sends,
                        std::span<const Piece> receives, Site site = Site::here()) = 0;
  // The same as the calls between hosts; the owner of a piece is the index of a member.
  virtual std::shared_ptr<Pending> sum_among(std::span<const int> members, float* data,
                                             std::span<const OwnedRange> pieces) = 0;
  virtual std::shared_ptr<Pending> gather_among(std::span<const int> members, void* data, int64_t width,
                                                std::span<const OwnedRange> pieces) = 0;
  // Return the traffic by purpose: "control", "sum", "gather", "exchange".
  virtual std::map<std::string, Traffic> counters() const = 0;

  // Return once ready() is true because of other ranks. PeerError if one of them has failed.
  template <class Ready>
  void wait(Ready ready) {
    if (ready()) return;
    const Waiting waiting(*this);
    for (int tries = 0; !ready(); ++tries) pause(tries);
  }
  // Return the seconds that this rank has spent in wait() so far.
  double waited_seconds() const { return waited_; }
  // Return the seconds so far in which messages of this rank were in transit while it did not wait.
  double hidden_seconds() const { return in_transit_seconds() - covered_; }

  // Set the activity and step of this rank, for messages of other ranks. A sign of life for the watchdog.
  virtual void set_phase(Phase phase, int64_t step) = 0;
  // Return the phase of the last call.
  virtual Phase phase() const = 0;
  // Start the watchdog: it exits the job with code 70 if a rank of this host shows no sign of life for this
  // many seconds; 0: never.
  virtual void watch(double seconds) = 0;
  // Exit the job with a code (1 to 255): all waiting ranks get PeerError. The first call of a job has effect.
  // If ranks are processes, print the message and do not return.
  virtual void fail(int code, const std::string& message) = 0;
  // Leave the job, after all files are closed; only counters() may follow. patience: seconds to wait for the
  // other ranks, 0 without limit. Return false if they did not arrive, or one has failed. Collective calls of
  // other ranks, and later ones of this rank, throw PeerLeftError.
  virtual bool close(double patience = 0) = 0;

 protected:
  // Wait between two checks of a condition: first spin, then yield, then sleep, so that a run with more ranks
  // than cores stays fast. Throws PeerError.
  virtual void pause(int tries) = 0;
  virtual void resume() = 0;
  // Return the seconds so far in which the communication thread had messages in transit.
  virtual double in_transit_seconds() const { return 0; }

 private:
  struct Waiting {
    explicit Waiting(Comm& comm_) : comm(comm_), begin(steady_seconds()), transit(comm_.in_transit_seconds()) {}
    ~Waiting() {
      comm.resume();
      comm.waited_ += steady_seconds() - begin;
      comm.covered_ += comm.in_transit_seconds() - transit;
    }
    Comm& comm;
    double begin, transit;
  };

  double waited_ = 0, covered_ = 0;  // seconds of all waits, and of these with messages in transit
};

// A phase inside another one, which is restored afterwards.
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
