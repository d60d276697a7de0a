#include <algorithm>
#include <bit>

#include "mudd/dist/collectives.h"
#include "mudd/dist/pieces.h"

namespace mudd::dist {

PieceGather::PieceGather(Link link, std::byte* data, int64_t width, std::vector<OwnedRange> pieces)
    : Machine(std::move(link)), data_(data), width_(width), pieces_(std::move(pieces)) {}

bool PieceGather::next_round() {
  const int n = link_.size();
  take_in();
  const auto owned_by = [&](int member) {
    return ranges_of(pieces_, [member](int owner) { return owner == member; });
  };
  if (!std::has_single_bit(static_cast<unsigned>(n))) {
    if (distance_++ > 0) return false;
    for (int k = 1; k < n; ++k) {
      const int to = (link_.me + k) % n, from = (link_.me + n - k) % n;
      post(to, owned_by(link_.me), {});
      post(from, {}, owned_by(from));
    }
    return true;
  }
  // Reverse the halving: members that differ in the bits above `distance` have exchanged.
  distance_ = distance_ == 0 ? n / 2 : distance_ / 2;
  if (distance_ == 0) return false;
  const int partner = link_.me ^ distance_, settled = 2 * distance_ - 1;  // bits that still distinguish owners
  const auto held_by = [&](int member) {
    return ranges_of(pieces_, [=](int owner) { return (owner & settled) == (member & settled); });
  };
  post(partner, held_by(link_.me), held_by(partner));
  return true;
}

void PieceGather::post(int partner, const Ranges& send, const Ranges& receive) {
  if (!receive.empty()) {
    std::vector<std::byte>& buffer = got_.emplace_back();
    std::byte* to = nullptr;
    if (data_ && receive.size() == 1) to = data_ + receive[0].first * width_;
    if (data_ && receive.size() > 1) {
      buffer.resize(static_cast<size_t>(total(receive) * width_));
      to = buffer.data();
    }
    arriving_.push_back(data_ && receive.size() > 1 ? receive : Ranges{});
    messages_.receive(link_, to, total(receive) * width_, partner);
  }
  if (send.empty()) return;
  const std::byte* from = packed(data_, width_, send, sent_.emplace_back());
  messages_.send(link_, from, total(send) * width_, partner);
}

void PieceGather::take_in() {
  for (size_t m = 0; m < got_.size(); ++m) {
    const std::byte* from = got_[m].data();
    for (const auto& [first, count] : arriving_[m]) {
      std::memcpy(data_ + first * width_, from, static_cast<size_t>(count * width_));
      from += count * width_;
    }
  }
  got_.clear();
  sent_.clear();
  arriving_.clear();
}

}  // namespace mudd::dist
