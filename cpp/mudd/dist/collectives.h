// Collectives between hosts, as state machines that are advanced until they are done: the waiting thread, or
// the communication thread, may have several in flight. No call blocks. A member has the index of its host.
//
// BlockGather      a block of equal size from each member to all (any number of members, log2 rounds).
// TreeBroadcast    bytes of one member to all.
// PieceSum         reduce-scatter: each member ends with the sum of its pieces, added by base/shard_tree.h.
// PieceGather      all-gather of pieces: every member receives each owner's piece.
// PieceExchange    all-to-all of pieces of any length, each from one member to another.
//
// For a power-of-two member count, PieceSum halves at distance 1, then 2, then 4 (each round is the tree's next
// level) and PieceGather doubles back. Otherwise owners exchange directly: the same bytes, more messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "mudd/dist/comm.h"
#include "mudd/dist/messages.h"
#include "mudd/dist/pieces.h"
#include "mudd/dist/wire.h"

namespace mudd::dist {

class Machine {
 public:
  explicit Machine(Link link) : link_(std::move(link)) {}
  virtual ~Machine() = default;
  // Progress as far as messages have arrived; return true when this member is done.
  bool advance();

 protected:
  // Process the messages of the last round and post the next round; return false if there is none.
  virtual bool next_round() = 0;

  Link link_;
  Messages messages_;

 private:
  bool done_ = false;
};

class BlockGather final : public Machine {
 public:
  // blocks [members * bytes]: the own block is the input.
  BlockGather(Link link, void* blocks, int64_t bytes);

 private:
  bool next_round() override;
  template <class Post>
  void each_run(int first, int count, Post post) const;

  std::byte* blocks_;
  int64_t bytes_;
  int have_ = 1;
};

class TreeBroadcast final : public Machine {
 public:
  TreeBroadcast(Link link, void* data, int64_t bytes, int root);

 private:
  bool next_round() override;

  void* data_;
  int64_t bytes_;
  int root_, round_ = 0;
};

class PieceSum final : public Machine {
 public:
  // data: null for a dry run.
  PieceSum(Link link, float* data, std::vector<OwnedRange> pieces, const Wire& wire = {});

 private:
  bool next_round() override;
  void halve();
  void exchange();
  void empty_slots(int count);
  void trade(int to, const Ranges& away, int from, size_t slot);
  void add();

  float* data_;
  std::vector<OwnedRange> pieces_;
  Wire wire_;
  Ranges mine_;
  std::vector<WireValues> sent_, got_;  // of this round; got_ has an empty slot for the own values
  size_t own_slot_ = 0;
  int distance_ = 0;  // of the round in flight; 0: none yet
};

class PieceGather final : public Machine {
 public:
  // width: bytes of an element. data: null for a dry run.
  PieceGather(Link link, std::byte* data, int64_t width, std::vector<OwnedRange> pieces);

 private:
  bool next_round() override;
  void take_in();
  void post(int partner, const Ranges& send, const Ranges& receive);

  std::byte* data_;
  int64_t width_;
  std::vector<OwnedRange> pieces_;
  std::vector<std::vector<std::byte>> sent_, got_;
  std::vector<Ranges> arriving_;  // ranges of each message; empty: received in place
  int distance_ = 0;
};

class PieceExchange final : public Machine {
 public:
  // The k-th piece that a member sends to another is the k-th that the other receives from it, of equal length;
  // a member sends no piece to itself.
  PieceExchange(Link link, std::vector<Piece> sends, std::vector<Piece> receives);

 private:
  bool next_round() override;

  std::vector<Piece> sends_, receives_;
  bool posted_ = false;
};

}  // namespace mudd::dist
