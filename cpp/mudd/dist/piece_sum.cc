#include <algorithm>
#include <bit>

#include "mudd/dist/collectives.h"
#include "mudd/dist/pieces.h"
#include "mudd/kernels/reduce/reduce.h"

namespace mudd::dist {
namespace {

bool halves(const Link& link) { return std::has_single_bit(static_cast<unsigned>(link.size())); }
constexpr int64_t kFloat = sizeof(float);

}  // namespace

PieceSum::PieceSum(Link link, float* data, std::vector<OwnedRange> pieces)
    : Machine(std::move(link)), data_(data), pieces_(std::move(pieces)) {}

bool PieceSum::next_round() {
  const int n = link_.size();
  if (distance_ > 0) {
    if (halves(link_)) add_halves();
    else add_all();
  }
  distance_ = distance_ == 0 ? 1 : halves(link_) ? 2 * distance_ : n;
  if (distance_ >= n) return false;
  if (halves(link_)) halve();
  else exchange();
  return true;
}

// Send the remaining pieces whose owner has the partner's bit to the partner.
void PieceSum::halve() {
  const int partner = link_.me ^ distance_, known = 2 * distance_ - 1;  // bits that matter from here
  const Ranges away = ranges_of(pieces_, [&](int owner) { return (owner & known) == (partner & known); });
  mine_ = ranges_of(pieces_, [&](int owner) { return (owner & known) == (link_.me & known); });
  sent_.resize(1);
  got_.resize(1);
  if (data_) got_[0].resize(static_cast<size_t>(total(mine_)));
  messages_.receive(link_, data_ ? got_[0].data() : nullptr, total(mine_) * kFloat, partner);
  if (!away.empty()) messages_.send(link_, packed(data_, 1, away, sent_[0]), total(away) * kFloat, partner);
}

void PieceSum::add_halves() {
  if (!data_) return;
  const float* from = got_[0].data();
  for (const auto& [first, count] : mine_) {
    float* here = data_ + first;
    const float* planes[] = {here, from};
    if (link_.me & distance_) std::swap(planes[0], planes[1]);
    sum_planes_alone(planes, here, count);
    from += count;
  }
}

void PieceSum::exchange() {
  const int n = link_.size();
  mine_ = ranges_of(pieces_, [&](int owner) { return owner == link_.me; });
  sent_.resize(static_cast<size_t>(n));
  got_.resize(static_cast<size_t>(n));
  for (int k = 1; k < n; ++k) {
    const int to = (link_.me + k) % n, from = (link_.me + n - k) % n;
    const Ranges away = ranges_of(pieces_, [&](int owner) { return owner == to; });
    if (data_) got_[from].resize(static_cast<size_t>(total(mine_)));
    messages_.receive(link_, data_ ? got_[from].data() : nullptr, total(mine_) * kFloat, from);
    if (!away.empty()) messages_.send(link_, packed(data_, 1, away, sent_[to]), total(away) * kFloat, to);
  }
}

void PieceSum::add_all() {
  if (!data_) return;
  std::vector<const float*> planes(got_.size());
  int64_t done = 0;
  for (const auto& [first, count] : mine_) {
    for (size_t m = 0; m < planes.size(); ++m) planes[m] = got_[m].data() + done;
    planes[link_.me] = data_ + first;
    sum_planes_alone(planes, data_ + first, count);
    done += count;
  }
}

}  // namespace mudd::dist
