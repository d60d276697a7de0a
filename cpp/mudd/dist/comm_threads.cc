#include "mudd/dist/comm_threads.h"

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>

#include "mudd/base/arena.h"
#include "mudd/base/check.h"

namespace mudd::dist {

const char* name_of(Phase phase) {
  constexpr const char* kNames[] = {"idle",    "data",   "forward", "backward", "reduce",
                                    "verdict", "update", "gather",  "save",     "evaluate"};
  return kNames[static_cast<int>(phase)];
}

namespace {

// The parts of all ranks of a node, each allocated by its rank.
class ThreadWindow final : public Window {
 public:
  explicit ThreadWindow(int ranks) : parts_(ranks) {}
  std::byte* part(int node_rank) const override { return parts_.at(node_rank).data(); }
  int64_t bytes(int node_rank) const override { return parts_.at(node_rank).bytes(); }
  void allocate(int node_rank, int64_t bytes) { parts_[node_rank] = Arena(bytes); }

 private:
  std::vector<Arena> parts_;
};

// A barrier that can be used again at once: arrivals are counted for ever.
struct Meeting {
  std::atomic<uint64_t> arrived{0};
};

// What all ranks of a job see.
struct Job {
  Job(int world_, int node_size_)
      : world(world_), node_size(node_size_), meetings(world_ / node_size_), sources(world_), windows(world_) {}

  const int world, node_size;
  Meeting all;
  std::vector<Meeting> meetings;                       // of the nodes
  std::vector<const void*> sources;                    // of an all_gather
  std::vector<std::shared_ptr<ThreadWindow>> windows;  // that a rank is making, by the first rank of its node

  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::string message;
};

class ThreadComm final : public Comm {
 public:
  ThreadComm(std::shared_ptr<Job> job, int rank) : job_(std::move(job)), rank_(rank) {}

  int rank() const override { return rank_; }
  int world() const override { return job_->world; }
  int node_size() const override { return job_->node_size; }

  std::shared_ptr<Window> window(int64_t bytes) override {
    std::shared_ptr<ThreadWindow>& shared = job_->windows[rank_ - node_rank()];
    if (node_rank() == 0) shared = std::make_shared<ThreadWindow>(node_size());
    node_barrier();
    const std::shared_ptr<ThreadWindow> made = shared;
    made->allocate(node_rank(), bytes);
    node_barrier();
    return made;
  }

  void node_barrier() override { meet(job_->meetings[node()], node_size(), node_meetings_); }
  void barrier() override { meet(job_->all, world(), meetings_); }

  void all_gather(const void* mine, int64_t bytes, void* out) override {
    job_->sources[rank_] = mine;
    barrier();
    for (int r = 0; r < world(); ++r)
      std::memcpy(static_cast<std::byte*>(out) + r * bytes, job_->sources[r], static_cast<size_t>(bytes));
    barrier();
  }

  void broadcast(void* data, int64_t bytes, int root) override {
    job_->sources[rank_] = data;
    barrier();
    if (rank_ != root) std::memcpy(data, job_->sources[root], static_cast<size_t>(bytes));
    barrier();
  }

  void set_phase(Phase phase, int64_t step) override {
    phase_ = phase;
    step_ = step;
  }

  void fail(int /*code*/, const std::string& message) override {
    const std::lock_guard lock(job_->mutex);
    if (job_->failed.load()) return;
    std::ostringstream text;
    text << "rank " << rank_ << " failed in step " << step_ << " (" << name_of(phase_) << "): " << message;
    job_->message = text.str();
    job_->failed.store(true);
  }

 private:
  // passed: meetings of this kind that this rank has been to.
  void meet(Meeting& meeting, int ranks, uint64_t& passed) {
    ++passed;
    meeting.arrived.fetch_add(1, std::memory_order_acq_rel);
    wait([&] { return meeting.arrived.load(std::memory_order_acquire) >= passed * static_cast<uint64_t>(ranks); });
  }

  void check_peers() override {
    if (!job_->failed.load(std::memory_order_relaxed)) return;
    const std::lock_guard lock(job_->mutex);
    throw PeerError("[ranks] " + job_->message);
  }

  std::shared_ptr<Job> job_;
  int rank_;
  uint64_t meetings_ = 0, node_meetings_ = 0;
  Phase phase_ = Phase::idle;
  int64_t step_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Comm>> thread_ranks(int world, int node_size) {
  check(world >= 1 && node_size >= 1 && world % node_size == 0, "ranks", "node_size: expected a divisor of ",
        world, " ranks, got ", node_size);
  const auto job = std::make_shared<Job>(world, node_size);
  std::vector<std::unique_ptr<Comm>> ranks;
  for (int r = 0; r < world; ++r) ranks.push_back(std::make_unique<ThreadComm>(job, r));
  return ranks;
}

}  // namespace mudd::dist
