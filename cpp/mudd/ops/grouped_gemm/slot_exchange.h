// The exchange of slot rows with the ranks of their experts (docs/parallel.md, experts). At home a rank has its
// slots sorted by expert. The owner of an expert has the rows of all members of its group, sorted as one
// process would sort them: by expert, then by member, whose shards are consecutive, then as at home. So the
// rows of one member for an expert are contiguous at both ends, and no row is sorted twice.
#pragma once

#include <cstdint>
#include <vector>

#include "mudd/dist/expert_group.h"
#include "mudd/ops/grouped_gemm/slots.h"

namespace mudd {

class SlotExchange {
 public:
  // Allocate for at most this many experts of a rank, shards of a run and ranks of a group.
  void book(int64_t experts, int shards, int ranks);

  // Compute owner.cuts (experts of this rank, shards of all members in order) from the cuts of every member.
  // RoomError if these exceed `most` rows; an even load is home.slots.
  void begin(const dist::ExpertGroup& group, const ExpertSlots& home, const ExpertSlots& owner, int64_t most);

  // Rows of `bytes` bytes each, contiguous, by sorted index at home and at the owner.
  struct Rows {
    std::byte *home, *owner;
    int64_t bytes;
  };
  // Send rows from home to the owners, or from the owners home.
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
