// Messages: the transfers of one round of a collective, split to the largest message of the transport.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "mudd/dist/partners.h"
#include "mudd/dist/transport.h"

namespace mudd::dist {

// A counter of sent messages; any thread may read it.
struct Meter {
  std::atomic<int64_t> messages{0}, bytes{0};
};

// The members of a collective and their transport. Member numbers are indexes of `ranks`.
struct Link {
  Transport* transport = nullptr;
  std::vector<int> ranks;  // of the members
  int me = 0;
  int tag = 0;
  int64_t chunk_bytes = 1 << 30;
  Meter* meter = nullptr;        // may be null
  Partners* partners = nullptr;  // notified of every message; may be null
  Phase phase = Phase::idle;     // the phase in which the members send
  const std::atomic<int64_t>* step = nullptr;

  int size() const { return static_cast<int>(ranks.size()); }
};

class Messages {
 public:
  void send(const Link& link, const void* data, int64_t bytes, int to);
  void receive(const Link& link, void* data, int64_t bytes, int from);
  // Return true if all have been sent and received; the object is then empty again.
  bool done(const Link& link);

 private:
  struct Open {
    Transport::Request request;
    int partner;  // the peer
    bool receives = false;
  };
  std::vector<Open> open_;  // in flight
};

}  // namespace mudd::dist
