// The collectives of RankComm among some of the ranks.
#include <algorithm>
#include <cstring>

#include "mudd/base/check.h"
#include "mudd/dist/collectives.h"
#include "mudd/dist/rank_comm.h"

namespace mudd::dist {

void RankComm::exchange(std::span<const int> members, std::span<const Piece> sends,
                        std::span<const Piece> receives, Site site) {
  require_open();
  Link link = this->link(kExchange, members);
  check(link.me < link.size(), "ranks", "exchange: rank ", rank(), " is not among the members");
  if (options_.debug && world() > 1) {
    const Call mine = call(Operation::exchange, 0, 0, site);
    node_channel_->meet(mine);
    if (nodes() > 1) compare_nodes(mine);
  }
  const auto of_others = [&](std::span<const Piece> pieces) {
    std::vector<Piece> others(pieces.begin(), pieces.end());
    std::erase_if(others, [&](const Piece& piece) { return piece.member == link.me || piece.bytes == 0; });
    return others;
  };
  const auto machine = std::make_shared<PieceExchange>(link, of_others(sends), of_others(receives));
  auto to = receives.begin();
  for (const Piece& own : sends) {
    if (own.member != link.me) continue;
    to = std::find_if(to, receives.end(), [&](const Piece& piece) { return piece.member == link.me; });
    check(to != receives.end() && to->bytes == own.bytes, "ranks", "exchange: a piece of ", own.bytes,
          " bytes for this rank itself is not what it receives");
    if (own.bytes > 0) std::memcpy(to->data, own.data, static_cast<size_t>(own.bytes));
    ++to;
  }
  const InnerPhase phase(*this, Phase::exchange);
  run([machine] { return machine->advance(); });
}

std::shared_ptr<Pending> RankComm::sum_among(std::span<const int> members, float* data,
                                             std::span<const OwnedRange> pieces) {
  require_open();
  const auto machine =
      std::make_shared<PieceSum>(link(kSum, members), data, std::vector<OwnedRange>(pieces.begin(), pieces.end()));
  return courier().post([machine] { return machine->advance(); }, Courier::Turn::beside);
}

std::shared_ptr<Pending> RankComm::gather_among(std::span<const int> members, void* data, int64_t width,
                                                std::span<const OwnedRange> pieces) {
  require_open();
  const auto machine = std::make_shared<PieceGather>(link(kGather, members), static_cast<std::byte*>(data), width,
                                                     std::vector<OwnedRange>(pieces.begin(), pieces.end()));
  return courier().post([machine] { return machine->advance(); }, Courier::Turn::in_turn);
}

}  // namespace mudd::dist
