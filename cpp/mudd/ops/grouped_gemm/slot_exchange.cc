#include "mudd/ops/grouped_gemm/slot_exchange.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "mudd/base/room_error.h"

namespace mudd {
namespace {

// busiest: the largest load of the experts of this rank.
[[noreturn]] void refuse(const dist::ExpertGroup& group, const ExpertSlots& home, const ExpertSlots& owner,
                         int64_t busiest, int64_t most) {
  const int64_t first = group.me() * owner.n_experts;
  const double even = static_cast<double>(home.slots), rows = static_cast<double>(owner.rows());
  std::ostringstream text;
  text << "this rank received " << owner.rows() << " tokens for experts " << first << " to "
       << first + owner.n_experts - 1 << " (" << owner.end(busiest) - owner.begin(busiest) << " for expert "
       << first + busiest << ") but has memory for " << most << "; an even load is " << home.slots
       << ". Set mesh.expert_room=" << std::ceil(10 * rows / even) / 10
       << " (a multiple of an even load) or more, or a smaller train.micro_batch_size";
  throw RoomError(text.str());
}

}  // namespace

void SlotExchange::book(int64_t experts, int shards, int ranks) {
  sent_.resize(static_cast<size_t>(experts * shards * ranks));
  got_.resize(sent_.size());
  at_home_.reserve(static_cast<size_t>(2 * experts * ranks));
  at_owner_.reserve(at_home_.capacity());
}

// block: counts for one member.
void SlotExchange::share_counts(const dist::ExpertGroup& group, const ExpertSlots& home, int64_t block) {
  const int64_t shards = home.shards;
  for (int64_t e = 0; e < home.n_experts; ++e)
    for (int64_t s = 0; s < shards; ++s)
      sent_[e * shards + s] = static_cast<int32_t>(home.cuts_of(e)[s + 1] - home.cuts_of(e)[s]);
  at_home_.clear();
  at_owner_.clear();
  const auto bytes_of = [&](std::vector<int32_t>& counts, int m) {
    return dist::Piece{m, reinterpret_cast<std::byte*>(counts.data() + m * block),
                       block * static_cast<int64_t>(sizeof(int32_t))};
  };
  for (int m = 0; m < group.ranks(); ++m) {
    at_home_.push_back(bytes_of(sent_, m));
    at_owner_.push_back(bytes_of(got_, m));
  }
  group.exchange(at_home_, at_owner_);
}

void SlotExchange::begin(const dist::ExpertGroup& group, const ExpertSlots& home, const ExpertSlots& owner,
                         int64_t most) {
  const int64_t experts = owner.n_experts, shards = home.shards, block = experts * shards;
  share_counts(group, home, block);
  int64_t row = 0, busiest = 0;
  for (int64_t e = 0; e < experts; ++e) {
    int64_t* cuts = owner.cuts + e * (owner.shards + 1);
    for (int m = 0; m < group.ranks(); ++m)
      for (int64_t s = 0; s < shards; ++s) {
        cuts[m * shards + s] = row;
        row += got_[m * block + e * shards + s];
      }
    cuts[owner.shards] = row;
    if (owner.end(e) - owner.begin(e) > owner.end(busiest) - owner.begin(busiest)) busiest = e;
  }
  if (row > most) refuse(group, home, owner, busiest, most);
}

// For each of `rows` in turn, list its pieces by member and expert: at the rank of the tokens and at the owner.
void SlotExchange::list(const dist::ExpertGroup& group, const ExpertSlots& home, const ExpertSlots& owner,
                        std::initializer_list<Rows> rows) {
  const int64_t experts = owner.n_experts;
  at_home_.clear();
  at_owner_.clear();
  const auto piece = [](int m, std::byte* data, int64_t begin, int64_t end, int64_t bytes) {
    return dist::Piece{m, data + begin * bytes, (end - begin) * bytes};
  };
  for (int m = 0; m < group.ranks(); ++m)
    for (int64_t e = 0; e < experts; ++e)
      for (const Rows& r : rows) {
        const int64_t there = m * experts + e;
        const int64_t* cuts = owner.cuts_of(e) + m * home.shards;
        at_home_.push_back(piece(m, r.home, home.begin(there), home.end(there), r.bytes));
        at_owner_.push_back(piece(m, r.owner, cuts[0], cuts[home.shards], r.bytes));
      }
}

void SlotExchange::dispatch(const dist::ExpertGroup& group, const ExpertSlots& home, const ExpertSlots& owner,
                            std::initializer_list<Rows> rows) {
  list(group, home, owner, rows);
  group.exchange(at_home_, at_owner_);
}

void SlotExchange::collect(const dist::ExpertGroup& group, const ExpertSlots& home, const ExpertSlots& owner,
                           std::initializer_list<Rows> rows) {
  list(group, home, owner, rows);
  group.exchange(at_owner_, at_home_);
}

}  // namespace mudd
