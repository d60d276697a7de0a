// Record: a transport that moves no bytes and records every message, for any count of ranks in one thread. It
// is as strict as a transport may be: a send ends only after its receive has been posted, so a collective that
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
  // The rounds of both ends: messages of a rank's earlier rounds have ended when it posts one of this round.
  int from_round = 0, to_round = 0;
};

class Record {
 public:
  explicit Record(int ranks);
  ~Record();

  Transport& transport(int rank) { return *transports_[rank]; }
  // Return the link of a rank in a collective of all ranks.
  Link link(int rank, int tag, int64_t chunk_bytes = 1 << 30);
  // Advance the state machines, one a rank, in turns until all are done; return false if a turn changes
  // nothing: they wait in a circle, or a message lacks its other end.
  bool finish(std::vector<std::unique_ptr<Machine>>& machines);

  // In the order of their match.
  const std::vector<RecordedMessage>& messages() const { return messages_; }
  // Return true if no send and no receive is left.
  bool all_matched() const;

 private:
  friend class RecordTransport;
  struct Ends {
    int64_t sent = 0, received = 0;
    std::deque<RecordedMessage> sends, receives;  // without another end so far
  };
  void match(Ends& ends);  // record messages whose ends have both been posted

  std::map<std::tuple<int, int, int>, Ends> ends_;  // by (from, to, tag)
  std::vector<RecordedMessage> messages_;
  std::vector<std::unique_ptr<Transport>> transports_;
  int64_t progress_ = 0;  // messages posted and requests ended
};

// Return the seconds until all messages of a record have arrived, if a rank has one port out and one in, each
// of `bandwidth` bytes a second, and a message takes `latency` seconds more.
double replay(const std::vector<RecordedMessage>& messages, int ranks, double latency, double bandwidth);

}  // namespace mudd::dist
