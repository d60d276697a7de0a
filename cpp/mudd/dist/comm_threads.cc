#include "mudd/dist/comm_threads.h"

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "mudd/base/arena.h"
#include "mudd/base/check.h"
#include "mudd/dist/rank_comm.h"

namespace mudd::dist {
namespace {

struct Sent {
  const void* data;
  int64_t bytes;
  std::shared_ptr<std::atomic<bool>> taken;
};

// The windows that a host is creating: the k-th of each rank belong together.
struct Making {
  std::vector<Arena> parts;
  int ready = 0;
};

// The state that all ranks of a job share.
struct Job {
  Job(int world_, int node_size_) : world(world_), node_size(node_size_), left(static_cast<size_t>(world_)) {}

  const int world, node_size;
  std::mutex mutex;
  std::map<std::tuple<int, int, int>, std::deque<Sent>> mail;          // by (from, to, tag)
  std::map<std::pair<int, int64_t>, std::shared_ptr<Making>> windows;  // by (node, number)
  std::atomic<int> leaving{0};
  std::vector<bool> left;  // by rank; guarded by the mutex
  std::atomic<bool> failed{false};
  std::string message;
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<Job> job, int rank)
      : job_(std::move(job)), rank_(rank), node_size_(job_->node_size) {}

  RankPlace open() override {
    RankPlace place;
    place.rank = rank_;
    place.world = job_->world;
    place.node_size = node_size_;
    return place;
  }

  RankPlace find_node() override { return open(); }

  Request isend(const void* data, int64_t bytes, int to, int tag) override {
    Open open;
    open.other = to;
    open.taken = std::make_shared<std::atomic<bool>>(false);
    const std::lock_guard lock(job_->mutex);
    job_->mail[{rank_, to, tag}].push_back({data, bytes, open.taken});
    return keep(std::move(open));
  }

  Request irecv(void* data, int64_t bytes, int from, int tag) override {
    Open open;
    open.data = data;
    open.bytes = bytes;
    open.key = {from, rank_, tag};
    open.other = from;
    return keep(std::move(open));
  }

  bool test(Request request) override {
    Open& open = open_.at(request);
    const bool done = open.taken ? open.taken->load(std::memory_order_acquire) : receive(request, open);
    if (done) open_.erase(request);
    else require_peer(open);
    return done;
  }

  bool window(int64_t bytes, WindowMemory& made) override {
    const int node = rank_ / node_size_, here = rank_ % node_size_;
    const std::lock_guard lock(job_->mutex);
    std::shared_ptr<Making>& making = job_->windows[{node, made_}];
    if (!making) making = std::make_shared<Making>();
    making->parts.resize(static_cast<size_t>(node_size_));
    if (!asked_) {
      making->parts[here] = Arena(bytes);
      ++making->ready;
      asked_ = true;
    }
    if (making->ready < node_size_) return false;
    for (const Arena& part : making->parts) {
      made.parts.push_back(part.data());
      made.bytes.push_back(part.bytes());
    }
    made.keep = making;
    asked_ = false;
    ++made_;
    if (++making->ready == 2 * node_size_) job_->windows.erase({node, made_ - 1});
    return true;
  }

  void split_nodes() override { node_size_ = 1; }

  void abort(int /*code*/, const std::string& message) override {
    const std::lock_guard lock(job_->mutex);
    if (job_->failed.load()) return;
    job_->message = message;
    job_->failed.store(true);
  }

  bool close() override {
    if (!std::exchange(leaving_, true)) {
      const std::lock_guard lock(job_->mutex);
      job_->left[rank_] = true;
      ++job_->leaving;
    }
    return job_->leaving.load() == job_->world;
  }

  bool failure(std::string* message) const override {
    if (!job_->failed.load(std::memory_order_relaxed)) return false;
    const std::lock_guard lock(job_->mutex);
    *message = job_->message;
    return true;
  }

  bool wants_own_thread() const override { return false; }

 private:
  struct Open {
    std::shared_ptr<std::atomic<bool>> taken;  // for a send
    void* data = nullptr;                      // for a receive
    int64_t bytes = 0;
    std::tuple<int, int, int> key;
    int other = 0;  // the peer
  };

  Request keep(Open open) {
    open_.emplace(++last_, std::move(open));
    return last_;
  }

  // A message that the peer sent or received before it left is no error, even if this rank has not seen it yet.
  void require_peer(const Open& open) {
    const std::lock_guard lock(job_->mutex);
    if (!job_->left[open.other] || job_->failed.load()) return;
    const bool over = open.taken ? open.taken->load() : job_->mail.contains(open.key);
    if (over) return;
    const PeerLeftError error(open.other);
    job_->message = error.what();
    job_->failed.store(true);  // before the caller frees memory that other ranks may read
    throw error;
  }

  bool receive(Request request, const Open& open) {
    for (const auto& [earlier, other] : open_) {
      if (earlier == request) break;
      if (!other.taken && other.key == open.key) return false;  // messages arrive in order
    }
    // Under the lock, so that a sender that sees failure() knows that no rank reads its memory.
    const std::lock_guard lock(job_->mutex);
    const auto box = job_->mail.find(open.key);
    if (job_->failed.load() || box == job_->mail.end()) return false;
    const Sent sent = box->second.front();
    box->second.pop_front();
    if (box->second.empty()) job_->mail.erase(box);
    if (sent.bytes != open.bytes)
      throw StateError("[ranks] message: expected " + std::to_string(open.bytes) + " bytes, got " +
                       std::to_string(sent.bytes));
    std::memcpy(open.data, sent.data, static_cast<size_t>(open.bytes));
    sent.taken->store(true, std::memory_order_release);
    return true;
  }

  std::shared_ptr<Job> job_;
  int rank_, node_size_;
  std::map<Request, Open> open_;
  Request last_ = 0;
  int64_t made_ = 0;
  bool asked_ = false, leaving_ = false;
};

WindowMemory status_memory(int ranks) {
  const auto arenas = std::make_shared<std::vector<Arena>>();
  WindowMemory status;
  for (int r = 0; r < ranks; ++r) {
    const Arena& arena = arenas->emplace_back(NodeStatus::part_bytes());
    status.parts.push_back(arena.data());
    status.bytes.push_back(arena.bytes());
  }
  status.keep = arenas;
  return status;
}

}  // namespace

std::vector<std::unique_ptr<Comm>> thread_ranks(int world, int node_size, const CommOptions& options) {
  check(world >= 1 && node_size >= 1 && world % node_size == 0, "ranks", "node_size: expected a divisor of ",
        world, " ranks, got ", node_size);
  const auto job = std::make_shared<Job>(world, node_size);
  std::vector<std::unique_ptr<Comm>> ranks;
  WindowMemory status;
  for (int r = 0; r < world; ++r) {
    if (r % node_size == 0) status = status_memory(node_size);
    std::unique_ptr<Transport> transport = std::make_unique<ThreadTransport>(job, r);
    if (options.wrap) transport = options.wrap(std::move(transport));
    const RankPlace place = transport->open();
    ranks.push_back(std::make_unique<RankComm>(std::move(transport), options, place, status));
  }
  return ranks;
}

}  // namespace mudd::dist
