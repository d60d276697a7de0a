#include "mudd/dist/row_sum.h"

#include <algorithm>
#include <bit>

#include "mudd/base/check.h"
#include "mudd/kernels/reduce/reduce.h"

namespace mudd::dist {
namespace {

bool bit_of(const std::vector<uint8_t>& bits, int64_t row) { return (bits[row / 8] >> (row % 8) & 1) != 0; }

// Call visit(index of the row, its first element) for the rows of the ranges.
template <class Visit>
void each_row(const Ranges& ranges, int64_t width, Visit visit) {
  int64_t row = 0;
  for (const auto& [first, count] : ranges)
    for (int64_t at = first; at < first + count; at += width) visit(row++, at);
}

}  // namespace

RowSum::RowSum(Link link, float* data, std::vector<OwnedRange> pieces, int64_t width, const Wire& wire)
    : Machine(std::move(link)),
      data_(data),
      pieces_(std::move(pieces)),
      width_(width),
      wire_(wire),
      zeros_(width) {
  check(data && width > 0, "ranks", "row: expected 1 number or more, got ", width);
  for (const OwnedRange& piece : pieces_)
    check(piece.length % width == 0, "ranks", "piece: expected whole rows of ", width, ", got ", piece.length);
}

bool RowSum::next_round() {
  if (stage_ == Stage::bits) {
    if (!choose_partners()) return false;
    exchange_bits();
    stage_ = Stage::rows;
  } else if (stage_ == Stage::rows) {
    exchange_rows();
    stage_ = Stage::add;
  } else {
    add_rows();
    stage_ = Stage::bits;
  }
  return true;
}

// The same as PieceSum: halving for a power-of-two member count, else each owner gets its pieces from all
// others.
bool RowSum::choose_partners() {
  const int n = link_.size(), me = link_.me;
  const bool halves = std::has_single_bit(static_cast<unsigned>(n));
  distance_ = distance_ == 0 ? 1 : halves ? 2 * distance_ : n;
  partners_.clear();
  if (distance_ >= n) return false;
  const int known = halves ? 2 * distance_ - 1 : ~0;  // bits of an owner that matter from here
  const auto of = [&](int member) {
    return ranges_of(pieces_, [&](int owner) { return (owner & known) == (member & known); });
  };
  mine_ = of(me);
  for (int k = 1; k < n && !halves; ++k) add_partner((me + k) % n, of((me + k) % n));
  if (halves) add_partner(me ^ distance_, of(me ^ distance_));
  return true;
}

// Pack the rows for a member.
void RowSum::add_partner(int member, const Ranges& away) {
  Partner& partner = partners_.emplace_back(Partner{
      .member = member, .sent_bits = {}, .got_bits = {}, .sent = WireValues(wire_), .got = WireValues(wire_)});
  partner.sent_bits.resize(static_cast<size_t>((total(away) / width_ + 7) / 8));
  each_row(away, width_, [&](int64_t row, int64_t at) {
    const float* values = data_ + at;
    if (std::all_of(values, values + width_, [](float x) { return x == 0; })) return;
    partner.sent_bits[row / 8] = static_cast<uint8_t>(partner.sent_bits[row / 8] | 1 << row % 8);
    partner.sent.append(values, width_);
  });
}

void RowSum::exchange_bits() {
  for (Partner& p : partners_) {
    p.got_bits.resize(static_cast<size_t>((total(mine_) / width_ + 7) / 8));
    messages_.receive(link_, p.got_bits.data(), std::ssize(p.got_bits), p.member);
    messages_.send(link_, p.sent_bits.data(), std::ssize(p.sent_bits), p.member);
  }
}

void RowSum::exchange_rows() {
  for (Partner& p : partners_) {
    int64_t rows = 0;
    for (const uint8_t bits : p.got_bits) rows += std::popcount(bits);
    std::byte* room = p.got.room(rows * width_);
    messages_.receive(link_, room, p.got.bytes(), p.member);
    messages_.send(link_, p.sent.data(), p.sent.bytes(), p.member);
  }
}

// Buffers are in member order, so the tree equals the tree of whole tables. Own rows that nobody else has are
// cut too (Wire).
void RowSum::add_rows() {
  std::vector<const float*> planes(partners_.size() + 1);
  std::vector<float> wide(planes.size() * static_cast<size_t>(width_));
  const auto place = [&](int member) { return partners_.size() == 1 ? (member & distance_ ? 1 : 0) : member; };
  each_row(mine_, width_, [&](int64_t row, int64_t at) {
    bool some = false;
    for (Partner& p : partners_) {
      const bool has = bit_of(p.got_bits, row);
      const int slot = place(p.member);
      planes[slot] = has ? p.got.wide(p.added++ * width_, width_, wide.data() + slot * width_) : zeros_.data();
      some |= has;
    }
    planes[place(link_.me)] = data_ + at;
    cut_own(wire_, data_ + at, width_);
    if (some) sum_planes_alone(planes, data_ + at, width_);
  });
}

}  // namespace mudd::dist
