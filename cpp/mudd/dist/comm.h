// Comm: what the ranks of one run say to each other. The ranks of a node share memory (windows); every sum is made
// by the caller, in the order of base/shard_tree.h, so a Comm only carries bytes. All ranks make the same
// collective calls in the same order, each from one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

namespace mudd::dist {

// Another rank has failed, or the job is being aborted: nothing that waits for it can end.
class PeerError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a rank is doing; others print it when it fails or hangs.
enum class Phase : uint8_t { idle, data, forward, backward, reduce, verdict, update, gather, save, evaluate };
const char* name_of(Phase phase);

// Memory of the ranks of a node, a part for each.
class Window {
 public:
  virtual ~Window() = default;
  virtual std::byte* part(int node_rank) const = 0;  // zeros at first; on a cache line
  virtual int64_t bytes(int node_rank) const = 0;
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
  virtual void node_barrier() = 0;
  virtual void barrier() = 0;
  // out [world * bytes]: what every rank gave, in rank order. bytes is the same everywhere.
  virtual void all_gather(const void* mine, int64_t bytes, void* out) = 0;
  // data of rank `root` to all others.
  virtual void broadcast(void* data, int64_t bytes, int root) = 0;

  // Returns once ready() is true; other ranks make it so. PeerError when one of them has failed.
  template <class Ready>
  void wait(Ready ready) {
    for (int tries = 0; !ready(); ++tries) {
      check_peers();
      if (tries < kSpins) continue;
      if (tries < kYields) std::this_thread::yield();
      else std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  // For messages of others: what this rank does from now on, in which step.
  virtual void set_phase(Phase phase, int64_t step) = 0;
  // Ends the job with an exit code: all waiting ranks get PeerError. The first call of a job counts.
  virtual void fail(int code, const std::string& message) = 0;

 protected:
  virtual void check_peers() = 0;

 private:
  static constexpr int kSpins = 200, kYields = 2000;  // more ranks than cores give each other way soon
};

}  // namespace mudd::dist
