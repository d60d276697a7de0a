// Record: a transport that moves no bytes and writes every message down, for any number of ranks in one thread.
// It is as strict as a transport may be: a send ends only when its receive has been posted, so a collective that
// needs buffering or waits in a circle does not end.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "mudd/dist/collectives.h"
#include "mudd/dist/transport.h"

namespace mudd::dist {

struct RecordedMessage {
  int from = 0, to = 0, tag = 0;
  int64_t bytes = 0;
  int turn = 0;  // messages of one turn need nothing of each other
};

class Record {
 public:
  explicit Record(int ranks);
  ~Record();

  Transport& transport(int rank) { return *transports_[rank]; }
  // The link of a rank in a collective of all ranks.
  Link link(int rank, int tag, int64_t chunk_bytes = 1 << 30);
  // Advances the machines, one a rank, in turns until all are done; false when a turn changes nothing: they wait
  // in a circle, or a message lacks its other end.
  bool finish(std::vector<std::unique_ptr<Machine>>& machines);

  const std::vector<RecordedMessage>& messages() const { return messages_; }
  // Whether no send and no receive is left over.
  bool all_matched() const;

 private:
  friend class RecordTransport;
  struct Ends {
    int64_t sent = 0, received = 0;
    std::deque<int64_t> sent_bytes, received_bytes;  // of what has no other end yet
  };
  void match(Ends& ends);

  std::map<std::tuple<int, int, int>, Ends> ends_;  // by (from, to, tag)
  std::vector<RecordedMessage> messages_;
  std::vector<std::unique_ptr<Transport>> transports_;
  int64_t progress_ = 0;  // messages posted and requests ended
  int turn_ = 0;
};

}  // namespace mudd::dist
