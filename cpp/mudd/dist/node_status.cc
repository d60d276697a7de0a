#include "mudd/dist/node_status.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

namespace mudd::dist {
namespace {

constexpr int64_t kSlotBytes = (sizeof(RankSlot) + 4095) / 4096 * 4096;

}  // namespace

std::string text_of(const Call& call) {
  constexpr const char* kNames[] = {MUDD_OPERATIONS(MUDD_NAME)};
  std::ostringstream text;
  text << kNames[std::min<size_t>(static_cast<size_t>(call.operation), std::size(kNames) - 1)];
  if (call.operation == Operation::all_gather) text << "(" << call.bytes << " bytes)";
  if (call.operation == Operation::broadcast) text << "(" << call.bytes << " bytes, root " << call.root << ")";
  if (call.line > 0) text << " at " << call.file << ":" << call.line;
  return text.str();
}

bool same_call(const Call& a, const Call& b) {
  return a.operation == b.operation && a.root == b.root && a.bytes == b.bytes && a.line == b.line &&
         std::strncmp(a.file, b.file, sizeof a.file) == 0;
}

int64_t NodeStatus::part_bytes() { return kSlotBytes + 2 * kArea; }

NodeStatus::NodeStatus(WindowMemory memory, int first_rank, int node_rank, std::string host)
    : memory_(std::move(memory)), first_rank_(first_rank), node_rank_(node_rank), host_(std::move(host)) {
  mine().process.store(::getpid(), std::memory_order_relaxed);
}

std::byte* NodeStatus::area(int node_rank, uint64_t operation) const {
  return memory_.parts[node_rank] + kSlotBytes + static_cast<int64_t>(operation % 2) * kArea;
}

void NodeStatus::set_phase(Phase phase, int64_t step) {
  RankSlot& slot = mine();
  if (step != kSameStep) slot.step.store(step, std::memory_order_relaxed);
  slot.phase.store(static_cast<int32_t>(phase), std::memory_order_relaxed);
  slot.beats.fetch_add(1, std::memory_order_relaxed);
}

bool NodeStatus::fail(const std::string& message) {
  RankSlot& slot = mine();
  if (slot.failed.exchange(1) != 0) return false;
  int32_t nobody = 0;
  const size_t length = std::min(message.size(), sizeof slot.message - 1);
  std::memcpy(slot.message, message.data(), length);
  slot.message[length] = '\0';
  return first_failed().compare_exchange_strong(nobody, node_rank_ + 1, std::memory_order_acq_rel);
}

bool NodeStatus::failure(std::string* message) const {
  const int32_t first = first_failed().load(std::memory_order_acquire);
  if (first == 0) return false;
  if (message) *message = slot(first - 1).message;
  return true;
}

bool NodeStatus::newly_gone(int node_rank) const {
  const int32_t process = slot(node_rank).process.load(std::memory_order_relaxed);
  if (process == 0 || ::kill(process, 0) == 0 || errno != ESRCH || failure(nullptr)) return false;
  return slot(node_rank).missed.exchange(1) == 0;
}

std::string NodeStatus::where(int node_rank) const {
  const RankSlot& slot = this->slot(node_rank);
  std::ostringstream text;
  text << "rank " << first_rank_ + node_rank;
  if (!host_.empty()) text << " (" << host_ << ")";
  text << " in step " << slot.step.load() << " (" << text_of(static_cast<Phase>(slot.phase.load())) << ")";
  if (slot.waiting.load() != 0) text << ", waiting for others";
  return text.str();
}

}  // namespace mudd::dist
