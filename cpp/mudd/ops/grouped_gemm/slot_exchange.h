// The rows of slots on their way to the ranks of their experts, and back (docs/parallel.md, experts). At home a
// rank has its own slots sorted by expert; the owner of an expert has the rows of all members of its group, sorted
// as one process would sort them: by expert, then by member, whose shards follow each other, then as at home. So
// what one member has of an expert is contiguous at both ends, and no row is sorted twice.
#pragma once

#include <cstdint>
#include <vector>

#include "mudd/dist/expert_group.h"
#include "mudd/ops/grouped_gemm/slots.h"

namespace mudd {

class SlotExchange {
 public:
  // For up to so many experts of a rank and shards of a run, in a group of so many ranks.
  void book(int64_t experts, int shards, int ranks);

  // Fills owner.cuts (experts of this rank, shards of all members in order) from the cuts of every member.
  // RoomError if these are more than `most` rows; an even load is home.slots.
  void begin(const dist::ExpertGroup& group, const ExpertSlots& home, const ExpertSlots& owner, int64_t most);

  // Rows of `bytes` bytes each, without gaps, by sorted place at home and at the owner.
  struct Rows {
    std::byte *home, *owner;
    int64_t bytes;
  };
  // Sends what is at home to the owners, or what owners have back home.
  void dispatch(const dist::ExpertGroup& group, const ExpertSlots& home, const ExpertSlots& owner,
                std::initializer_list<Rows> rows);
  void collect(const dist::ExpertGroup& group, const ExpertSlots& home, const ExpertSlots& owner,
               std::initializer_list<Rows> rows);

 private:
  void share_counts(const dist::ExpertGroup& group, const ExpertSlots& home, int64_t block);
  void list(const dist::ExpertGroup& group, const ExpertSlots& home, const ExpertSlots& owner,
            std::initializer_list<Rows> rows);

  std::vector<int32_t> sent_, got_;  // [member][expert of the receiver][shard]: rows
  std::vector<dist::Piece> at_home_, at_owner_;
};

}  // namespace mudd
