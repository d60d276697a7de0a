// The transfer of weights that one host has updated to the others (SharedStep).
#include "mudd/train/shared_step.h"

namespace mudd {

bool SharedStep::finish_update(bool finite) {
  ParamStore& store = executor_.store();
  store.packs().masters_written();
  const bool all_finite = !exchange_.any(!finite);
  over_ranks_.experts().send_weights();
  if (comm_.nodes() > 1) {
    send_weights();
    store.set_arrival(this);
    if (store.packs().has_own()) settle();  // own packed copies need all masters
  }
  return all_finite;
}

// Send weights bucket by bucket, the last one first: forward reads first what backward finished last.
void SharedStep::send_weights() {
  const ParamStore& store = executor_.store();
  ++update_;
  to_come_ = homes_.size();
  for (size_t b = homes_.size(); b-- > 0;) {
    if (homes_[b].empty()) continue;
    auto* plane = store.planes().master(homes_[b].front());
    std::vector<dist::OwnedRange> pieces;
    for (int i : homes_[b])
      for (int node = 0; node < comm_.nodes(); ++node) {
        const Part p = ownership_.part(i, owner_of(comm_, node, comm_.node_rank()));
        pieces.push_back(
            {.offset = store.planes().master(i) - plane + p.begin, .length = p.size(), .owner = node});
      }
    on_their_way_[b] = comm_.gather_between_nodes(plane, sizeof(float), pieces);
  }
}

// Receive the data of ranks with this index; then wait for the other ranks of the host to do the same.
void SharedStep::receive_bucket(size_t bucket) {
  const auto arrived = [&](int rank) -> std::atomic<uint64_t>& {
    return reinterpret_cast<std::atomic<uint64_t>*>(arrived_->part(rank))[bucket];
  };
  if (const auto sent = std::move(on_their_way_[bucket])) comm_.wait([&] { return sent->done(); });
  for (int i : homes_[bucket])
    for (int node = 0; node < comm_.nodes(); ++node)
      if (node != comm_.node())
        executor_.store().packs().repack(ownership_.part(i, owner_of(comm_, node, comm_.node_rank())));
  arrived(comm_.node_rank()).store(update_, std::memory_order_release);
  for (int r = 0; r < comm_.node_size(); ++r)
    comm_.wait([&] { return arrived(r).load(std::memory_order_acquire) >= update_; });
}

void SharedStep::await(int i) {
  const int home = ownership_.home(i);
  if (home < 0 || to_come_ <= static_cast<size_t>(home)) return;
  while (to_come_ > static_cast<size_t>(home)) receive_bucket(--to_come_);
}

void SharedStep::settle() {
  while (to_come_ > 0) receive_bucket(--to_come_);
  executor_.store().set_arrival(nullptr);
}

}  // namespace mudd
