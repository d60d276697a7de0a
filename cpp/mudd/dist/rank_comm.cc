#include "mudd/dist/rank_comm.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "mudd/base/check.h"
#include "mudd/dist/collectives.h"
#include "mudd/dist/joining.h"
#include "mudd/dist/row_sum.h"

namespace mudd::dist {
namespace {

constexpr int kTags = 1 << 14;  // tags in rotation; MPI guarantees 2^15
constexpr int kSpins = 200, kYields = 1000;

class NodeWindow final : public Window {
 public:
  explicit NodeWindow(WindowMemory memory) : memory_(std::move(memory)) {}
  std::byte* part(int node_rank) const override { return memory_.parts.at(node_rank); }
  int64_t bytes(int node_rank) const override { return memory_.bytes.at(node_rank); }

 private:
  WindowMemory memory_;
};

}  // namespace

RankComm::RankComm(std::unique_ptr<Transport> transport, const CommOptions& options)
    : options_(options), transport_(std::move(transport)) {
  if (transport_->wants_own_thread()) courier_ = std::make_unique<Courier>(*transport_);
  run([this] {
    place_ = transport_->open();
    return true;
  });
  const auto joining = std::make_shared<Joining>(*transport_, place_, options_.facts, options_.join_timeout);
  run([joining] { return joining->advance(); });
  run([this] {
    place_ = transport_->find_node();
    return true;
  });
  start(memory(NodeStatus::part_bytes()));
  barrier(Site::here());
}

RankComm::RankComm(std::unique_ptr<Transport> transport, const CommOptions& options, RankPlace place,
                   WindowMemory status)
    : options_(options), transport_(std::move(transport)), place_(std::move(place)) {
  start(std::move(status));
}

void RankComm::start(WindowMemory status) {
  check(options_.chunk_bytes >= 1 && options_.chunk_bytes <= 1 << 30, "ranks",
        "chunk_bytes: expected 1 to 2^30, got ", options_.chunk_bytes);
  status_ = std::make_unique<NodeStatus>(std::move(status), rank() - node_rank(), node_rank(), place_.host);
  node_channel_ = std::make_unique<NodeChannel>(*status_, *this);
  partners_ = std::make_unique<Partners>(world());
  watch(options_.hang_timeout);
}

RankComm::~RankComm() = default;

Courier& RankComm::courier() {
  if (!courier_) courier_ = std::make_unique<Courier>(*transport_);
  return *courier_;
}

// Run a task here, or on the communication thread if there is one; return when it is done.
void RankComm::run(Courier::Task task) {
  if (!courier_) return wait(task);
  const auto ticket = courier_->post(std::move(task), Courier::Turn::urgent);
  wait([&] { return ticket->done(); });
}

WindowMemory RankComm::memory(int64_t bytes) {
  // Shared with the task: it may outlive a wait that ends with PeerError.
  const auto made = std::make_shared<WindowMemory>();
  run([this, bytes, made] { return transport_->window(bytes, *made); });
  return *made;
}

std::shared_ptr<Window> RankComm::window(int64_t bytes) {
  require_open();
  check(bytes >= 0, "ranks", "window: expected 0 bytes or more, got ", bytes);
  return std::make_shared<NodeWindow>(memory(bytes));
}

// Create the new status while waiting threads still read the old one.
void RankComm::split_nodes() {
  require_open();
  if (node_size() == 1) return;
  barrier(Site::here());
  watchdog_.reset();
  run([this] {
    transport_->split_nodes();
    return true;
  });
  WindowMemory status = memory(NodeStatus::part_bytes());
  place_.node_size = 1;
  start(std::move(status));
  barrier(Site::here());
}

Call RankComm::call(Operation operation, int64_t bytes, int root, Site site) const {
  Call call;
  call.operation = operation;
  call.bytes = bytes;
  call.root = root;
  if (!options_.debug) return call;
  const std::string_view file = site.file;
  const std::string_view tail = file.substr(file.size() - std::min(file.size(), sizeof call.file - 1));
  std::memcpy(call.file, tail.data(), tail.size());
  call.line = site.line;
  return call;
}

Link RankComm::link(Purpose purpose, int member_rank) {
  std::vector<int> ranks;
  for (int n = 0; n < nodes(); ++n) ranks.push_back(n * node_size() + member_rank);
  Link all = link(purpose, ranks);
  all.me = node();
  return all;
}

Link RankComm::link(Purpose purpose, std::span<const int> members) {
  Link link;
  link.transport = transport_.get();
  link.ranks.assign(members.begin(), members.end());
  link.me = static_cast<int>(std::ranges::find(link.ranks, rank()) - link.ranks.begin());
  link.tag = turns_[purpose] * kPurposes + purpose;
  link.chunk_bytes = options_.chunk_bytes;
  link.meter = &meters_[purpose];
  link.partners = partners_.get();
  constexpr Phase kPhaseOf[kPurposes] = {Phase::verdict, Phase::reduce, Phase::gather, Phase::exchange};
  link.phase = kPhaseOf[purpose];
  link.step = &status_->mine().step;
  turns_[purpose] = (turns_[purpose] + 1) % (kTags / kPurposes);
  return link;
}

void RankComm::gather_nodes(void* blocks, int64_t bytes) {
  const auto machine = std::make_shared<BlockGather>(link(kControl, 0), blocks, bytes);
  if (node_rank() == 0) run([machine] { return machine->advance(); });
}

// In debug mode, compare the calls of the first ranks of the hosts.
void RankComm::compare_nodes(const Call& call) {
  if (!options_.debug) return;
  std::vector<Call> calls(static_cast<size_t>(nodes()));
  calls[node()] = call;
  gather_nodes(calls.data(), sizeof(Call));
  for (int n = 0; n < nodes() && node_rank() == 0; ++n)
    if (!same_call(call, calls[n]))
      throw StateError("[ranks] ranks of one run must make the same calls: rank " + std::to_string(rank()) +
                       " makes " + text_of(call) + ", rank " + std::to_string(n * node_size()) + " " +
                       text_of(calls[n]));
}

void RankComm::require_open() const {
  if (left_) throw PeerLeftError(rank());
}

void RankComm::node_barrier(Site site) {
  require_open();
  if (node_size() > 1) node_channel_->meet(call(Operation::node_barrier, 0, 0, site));
}

void RankComm::barrier(Site site) {
  require_open();
  if (world() == 1) return;
  const Call mine = call(Operation::barrier, 0, 0, site);
  node_channel_->meet(mine);
  if (nodes() == 1) return;
  compare_nodes(mine);
  std::vector<char> blocks(static_cast<size_t>(nodes()));
  gather_nodes(blocks.data(), 1);
  node_channel_->meet(mine);
}

void RankComm::all_gather(const void* mine, int64_t bytes, void* out, Site site) {
  require_open();
  if (world() == 1) {
    if (bytes > 0) std::memcpy(out, mine, static_cast<size_t>(bytes));
    return;
  }
  const Call call = this->call(Operation::all_gather, bytes, 0, site);
  auto* all = static_cast<std::byte*>(out);
  const int64_t block = bytes * node_size();
  node_channel_->all_gather(call, mine, bytes, all + node() * block);
  if (nodes() == 1) return;
  compare_nodes(call);
  gather_nodes(all, block);
  node_channel_->broadcast(call, all, block * nodes(), 0);
}

void RankComm::broadcast(void* data, int64_t bytes, int root, Site site) {
  require_open();
  check(root >= 0 && root < world(), "ranks", "root: expected 0 to ", world() - 1, ", got ", root);
  if (world() == 1) return;
  const Call call = this->call(Operation::broadcast, bytes, root, site);
  const int root_node = root / node_size();
  if (nodes() > 1) compare_nodes(call);
  if (node() == root_node) node_channel_->broadcast(call, data, bytes, root % node_size());
  if (nodes() == 1) return;
  const auto machine = std::make_shared<TreeBroadcast>(link(kControl, 0), data, bytes, root_node);
  if (node_rank() == 0) run([machine] { return machine->advance(); });
  if (node() != root_node) node_channel_->broadcast(call, data, bytes, 0);
}

std::shared_ptr<Pending> RankComm::sum_between_nodes(float* data, std::span<const OwnedRange> pieces, int64_t row,
                                                     const Wire& wire) {
  require_open();
  std::vector<OwnedRange> own(pieces.begin(), pieces.end());
  std::shared_ptr<Machine> machine;
  if (row > 0) machine = std::make_shared<RowSum>(link(kSum, node_rank()), data, std::move(own), row, wire);
  else machine = std::make_shared<PieceSum>(link(kSum, node_rank()), data, std::move(own), wire);
  return courier().post([machine] { return machine->advance(); }, Courier::Turn::beside);
}

std::shared_ptr<Pending> RankComm::gather_between_nodes(void* data, int64_t width,
                                                        std::span<const OwnedRange> pieces) {
  require_open();
  const auto machine = std::make_shared<PieceGather>(link(kGather, node_rank()), static_cast<std::byte*>(data),
                                                     width, std::vector<OwnedRange>(pieces.begin(), pieces.end()));
  return courier().post([machine] { return machine->advance(); }, Courier::Turn::in_turn);
}

std::map<std::string, Traffic> RankComm::counters() const {
  const auto read = [&](Purpose purpose) {
    return Traffic{meters_[purpose].messages.load(), meters_[purpose].bytes.load()};
  };
  return {
      {"control", read(kControl)}, {"sum", read(kSum)}, {"gather", read(kGather)}, {"exchange", read(kExchange)}};
}

void RankComm::pause(int tries) {
  if (tries < kSpins) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
    return;
  }
  if (status_) status_->mine().waiting.store(1, std::memory_order_relaxed);
  std::string message;
  // If ranks are threads, only the transport knows when no rank reads their memory.
  const bool processes = transport_->wants_own_thread() && status_;
  if (transport_->failure(&message) || (processes && status_->failure(&message)))
    throw PeerError("[ranks] " + message);
  if (tries < kYields) std::this_thread::yield();
  else std::this_thread::sleep_for(std::chrono::microseconds(50));
}

void RankComm::resume() {
  if (status_) status_->mine().waiting.store(0, std::memory_order_relaxed);
}

}  // namespace mudd::dist
