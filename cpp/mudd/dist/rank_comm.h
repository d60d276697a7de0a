// RankComm: the Comm of every job of several ranks. Inside a host it uses the status and windows; between hosts
// the state machines of collectives.h, which the first rank of each host runs for control messages.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mudd/dist/comm.h"
#include "mudd/dist/courier.h"
#include "mudd/dist/messages.h"
#include "mudd/dist/node_channel.h"
#include "mudd/dist/node_status.h"
#include "mudd/dist/partners.h"
#include "mudd/dist/transport.h"
#include "mudd/dist/watchdog.h"

namespace mudd::dist {

class RankComm final : public Comm {
 public:
  // Open the transport and create the status. All ranks of the job construct it together.
  RankComm(std::unique_ptr<Transport> transport, const CommOptions& options);
  // For ranks with a known place and status (NodeStatus::part_bytes() of each rank): meets no other rank.
  RankComm(std::unique_ptr<Transport> transport, const CommOptions& options, RankPlace place, WindowMemory status);
  ~RankComm() override;

  int rank() const override { return place_.rank; }
  int world() const override { return place_.world; }
  int node_size() const override { return place_.node_size; }
  const RankPlace& place() const { return place_; }

  std::shared_ptr<Window> window(int64_t bytes) override;
  int64_t longest_message() const override { return options_.chunk_bytes; }
  int64_t shared_bytes_free() const override { return transport_->shared_bytes_free(); }
  void split_nodes() override;
  void node_barrier(Site site) override;
  void barrier(Site site) override;
  void all_gather(const void* mine, int64_t bytes, void* out, Site site) override;
  void broadcast(void* data, int64_t bytes, int root, Site site) override;
  std::shared_ptr<Pending> sum_between_nodes(float* data, std::span<const OwnedRange> pieces, int64_t row,
                                             const Wire& wire) override;
  std::shared_ptr<Pending> gather_between_nodes(void* data, int64_t width,
                                                std::span<const OwnedRange> pieces) override;
  void exchange(std::span<const int> members, std::span<const Piece> sends, std::span<const Piece> receives,
                Site site) override;
  std::shared_ptr<Pending> sum_among(std::span<const int> members, float* data,
                                     std::span<const OwnedRange> pieces) override;
  std::shared_ptr<Pending> gather_among(std::span<const int> members, void* data, int64_t width,
                                        std::span<const OwnedRange> pieces) override;
  std::map<std::string, Traffic> counters() const override;
  void set_phase(Phase phase, int64_t step) override {
    status_->set_phase(phase, step);
    reached(phase);
  }
  Phase phase() const override {
    return static_cast<Phase>(status_->mine().phase.load(std::memory_order_relaxed));
  }
  void watch(double seconds) override;
  void fail(int code, const std::string& message) override;
  bool close(double patience) override;

 private:
  enum Purpose { kControl, kSum, kGather, kExchange, kPurposes };

  void start(WindowMemory status);
  void pause(int tries) override;
  void resume() override;
  double in_transit_seconds() const override { return courier_ ? courier_->busy_seconds() : 0; }
  WindowMemory memory(int64_t bytes);
  Call call(Operation operation, int64_t bytes, int root, Site site) const;
  Link link(Purpose purpose, int member_rank);
  Link link(Purpose purpose, std::span<const int> members);
  void run(Courier::Task task);
  Courier& courier();
  void compare_nodes(const Call& call);
  void gather_nodes(void* blocks, int64_t bytes);
  void require_open() const;
  void end_job(int code, const std::string& text);
  [[noreturn]] void end_process(int code, const std::string& message);

  CommOptions options_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Courier> courier_;  // if the transport needs a thread, or an exchange runs in the background
  RankPlace place_;
  std::unique_ptr<NodeStatus> status_;
  std::unique_ptr<NodeChannel> node_channel_;
  std::array<Meter, kPurposes> meters_;
  std::unique_ptr<Partners> partners_;
  std::array<int, kPurposes> turns_{};  // of links, by purpose: ranks may post several purposes in any order
  bool left_ = false, closed_ = false;  // close() was called by this rank; by all ranks
  std::unique_ptr<Watchdog> watchdog_;  // last: it reads the status
};

}  // namespace mudd::dist
