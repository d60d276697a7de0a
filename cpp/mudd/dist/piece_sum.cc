#include <algorithm>
#include <bit>

#include "mudd/dist/collectives.h"
#include "mudd/kernels/reduce/reduce.h"

namespace mudd::dist {
namespace {

bool halves(const Link& link) { return std::has_single_bit(static_cast<unsigned>(link.size())); }
constexpr int64_t kBlock = 4096;  // values that stay in L1 while they are widened and added

}  // namespace

PieceSum::PieceSum(Link link, float* data, std::vector<OwnedRange> pieces, const Wire& wire)
    : Machine(std::move(link)), data_(data), pieces_(std::move(pieces)), wire_(wire) {}

bool PieceSum::next_round() {
  const int n = link_.size();
  if (distance_ > 0) add();
  distance_ = distance_ == 0 ? 1 : halves(link_) ? 2 * distance_ : n;
  if (distance_ >= n) return false;
  if (halves(link_)) halve();
  else exchange();
  return true;
}

// Post the two messages of this round with a member: `away` to it, and its part of `mine_` into slot `from`.
void PieceSum::trade(int to, const Ranges& away, int from, size_t slot) {
  std::byte* room = data_ ? got_[slot].room(total(mine_)) : nullptr;
  messages_.receive(link_, room, total(mine_) * wire_.width(), from);
  if (!away.empty()) messages_.send(link_, sent_[slot].message(data_, away), total(away) * wire_.width(), to);
}

void PieceSum::empty_slots(int count) {
  const auto slots = [&] { return std::vector<WireValues>(static_cast<size_t>(count), WireValues(wire_)); };
  sent_ = slots();
  got_ = slots();
}

// Send the remaining pieces whose owner has the partner's bit to the partner. The slots are in the order of the
// tree: 0 has the member without the bit.
void PieceSum::halve() {
  const int partner = link_.me ^ distance_, known = 2 * distance_ - 1;  // bits that matter from here
  mine_ = ranges_of(pieces_, [&](int owner) { return (owner & known) == (link_.me & known); });
  empty_slots(2);
  own_slot_ = link_.me & distance_ ? 1 : 0;
  trade(partner, ranges_of(pieces_, [&](int owner) { return (owner & known) == (partner & known); }), partner,
        1 - own_slot_);
}

void PieceSum::exchange() {
  const int n = link_.size();
  mine_ = ranges_of(pieces_, [&](int owner) { return owner == link_.me; });
  empty_slots(n);
  own_slot_ = static_cast<size_t>(link_.me);
  for (int k = 1; k < n; ++k) {
    const int to = (link_.me + k) % n, from = (link_.me + n - k) % n;
    trade(to, ranges_of(pieces_, [&](int owner) { return owner == to; }), from, static_cast<size_t>(from));
  }
}

// Add the slots by the tree. In bf16 the own values are cut too, so a sum does not depend on its owner.
void PieceSum::add() {
  if (!data_) return;
  std::vector<const float*> planes(got_.size());
  std::vector<float> wide(wire_.narrow ? got_.size() * kBlock : 0);
  int64_t done = 0;
  for (const auto& [first, count] : mine_) {
    const int64_t block = wire_.narrow ? kBlock : count;
    for (int64_t at = 0; at < count; at += block) {
      const int64_t some = std::min(block, count - at);
      float* here = data_ + first + at;
      for (size_t m = 0; m < planes.size(); ++m)
        planes[m] =
            m == own_slot_ ? here : got_[m].wide(done + at, some, wide.empty() ? nullptr : &wide[m * kBlock]);
      cut_own(wire_, here, some);
      sum_planes_alone(planes, here, some);
    }
    done += count;
  }
}

}  // namespace mudd::dist
