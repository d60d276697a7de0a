#include "mudd/dist/collectives.h"

namespace mudd::dist {

PieceExchange::PieceExchange(Link link, std::vector<Piece> sends, std::vector<Piece> receives)
    : Machine(std::move(link)), sends_(std::move(sends)), receives_(std::move(receives)) {}

// One round: only sender and receiver know the sizes, so no member forwards data. Members start with their
// neighbours, so that no port gets all of the first messages.
bool PieceExchange::next_round() {
  if (posted_) return false;
  posted_ = true;
  const int n = link_.size();
  for (int distance = 1; distance < n; ++distance) {
    const int from = (link_.me + n - distance) % n, to = (link_.me + distance) % n;
    for (const Piece& piece : receives_)
      if (piece.member == from) messages_.receive(link_, piece.data, piece.bytes, from);
    for (const Piece& piece : sends_)
      if (piece.member == to) messages_.send(link_, piece.data, piece.bytes, to);
  }
  return true;
}

}  // namespace mudd::dist
