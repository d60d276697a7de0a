#include "mudd/dist/collectives.h"

#include <algorithm>
#include <bit>

namespace mudd::dist {

bool Machine::advance() {
  while (!done_ && messages_.done(link_)) done_ = !next_round();
  return done_;
}

BlockGather::BlockGather(Link link, void* blocks, int64_t bytes)
    : Machine(std::move(link)), blocks_(static_cast<std::byte*>(blocks)), bytes_(bytes) {}

// Call post(data, bytes) for the one or two contiguous ranges of `count` blocks from `first`.
template <class Post>
void BlockGather::each_run(int first, int count, Post post) const {
  first %= link_.size();
  const int straight = std::min(count, link_.size() - first);
  const auto at = [&](int block) { return blocks_ ? blocks_ + block * bytes_ : nullptr; };
  post(at(first), straight * bytes_);
  if (count > straight) post(at(0), (count - straight) * bytes_);
}

bool BlockGather::next_round() {
  const int n = link_.size();
  if (have_ >= n) return false;
  const int count = std::min(have_, n - have_);
  const int to = (link_.me + n - have_) % n, from = (link_.me + have_) % n;
  each_run(link_.me, count, [&](void* data, int64_t bytes) { messages_.send(link_, data, bytes, to); });
  each_run(link_.me + have_, count,
           [&](void* data, int64_t bytes) { messages_.receive(link_, data, bytes, from); });
  have_ += count;
  return true;
}

TreeBroadcast::TreeBroadcast(Link link, void* data, int64_t bytes, int root)
    : Machine(std::move(link)), data_(data), bytes_(bytes), root_(root) {}

// Member i of the tree, counted from the root, receives from i with its lowest bit cleared and sends to those
// that set a lower bit.
bool TreeBroadcast::next_round() {
  const int n = link_.size(), i = (link_.me - root_ + n) % n;
  const auto member = [&](int j) { return (j + root_) % n; };
  const int lowest = i == 0 ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(n))) : i & -i;
  if (round_++ == 0) {
    if (i != 0) messages_.receive(link_, data_, bytes_, member(i - lowest));
    return true;
  }
  if (round_ > 2) return false;
  for (int bit = lowest / 2; bit > 0; bit /= 2)
    if (i + bit < n) messages_.send(link_, data_, bytes_, member(i + bit));
  return true;
}

}  // namespace mudd::dist
