#include "mudd/dist/node_channel.h"

#include <algorithm>
#include <cstring>

#include "mudd/base/check.h"

namespace mudd::dist {
namespace {

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

void NodeChannel::meet(const Call& call) {
  const uint64_t k = ++passed_;
  status_.mine().calls[k % 2] = call;
  status_.mine().arrived.store(k, std::memory_order_release);
  for (int r = 0; r < status_.ranks(); ++r) {
    const RankSlot& other = status_.slot(r);
    const auto arrived = [&] { return other.arrived.load(std::memory_order_acquire) >= k; };
    comm_.wait([&] { return arrived() || other.left.load(std::memory_order_acquire) != 0; });
    if (!arrived()) throw PeerLeftError(comm_.rank() - comm_.node_rank() + r);
    if (!same_call(call, other.calls[k % 2]))
      throw StateError("[ranks] ranks of one run must make the same calls: operation " + std::to_string(k) +
                       " of rank " + std::to_string(comm_.rank()) + " is " + text_of(call) + ", of rank " +
                       std::to_string(comm_.rank() - comm_.node_rank() + r) + " " + text_of(other.calls[k % 2]));
  }
}

void NodeChannel::all_gather(const Call& call, const void* mine, int64_t bytes, std::byte* out) {
  int64_t begin = 0;
  do {
    const int64_t count = std::min(NodeStatus::kArea, bytes - begin);
    const uint64_t k = next();
    copy_bytes(status_.area(comm_.node_rank(), k), static_cast<const std::byte*>(mine) + begin, count);
    meet(call);
    for (int r = 0; r < status_.ranks(); ++r) copy_bytes(out + r * bytes + begin, status_.area(r, k), count);
    begin += count;
  } while (begin < bytes);
}

void NodeChannel::broadcast(const Call& call, void* data, int64_t bytes, int node_root) {
  int64_t begin = 0;
  do {
    const int64_t count = std::min(NodeStatus::kArea, bytes - begin);
    const uint64_t k = next();
    std::byte* part = static_cast<std::byte*>(data) + begin;
    const bool root = comm_.node_rank() == node_root;
    if (root) copy_bytes(status_.area(node_root, k), part, count);
    meet(call);
    if (!root) copy_bytes(part, status_.area(node_root, k), count);
    begin += count;
  } while (begin < bytes);
}

}  // namespace mudd::dist
