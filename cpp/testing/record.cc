#include "testing/record.h"

#include <algorithm>
#include <string>
#include <utility>

#include "mudd/base/check.h"

namespace mudd::dist {

// One rank's end. A request is the index of its message among messages with equal ends and tag.
class RecordTransport final : public Transport {
 public:
  RecordTransport(Record& record, int rank) : record_(record), rank_(rank) {}

  RankPlace open() override {
    RankPlace place;
    place.rank = rank_;
    place.world = static_cast<int>(record_.transports_.size());
    return place;
  }
  RankPlace find_node() override { return open(); }
  Request isend(const void* /*data*/, int64_t bytes, int to, int tag) override {
    return post({rank_, to, tag}, true, bytes);
  }
  Request irecv(void* /*data*/, int64_t bytes, int from, int tag) override {
    return post({from, rank_, tag}, false, bytes);
  }
  bool test(Request request) override {
    const auto& [key, number] = requests_.at(request);
    const Record::Ends& ends = record_.ends_.at(key);
    const bool done = std::min(ends.sent, ends.received) >= number;
    record_.progress_ += done;
    moved_ |= done;
    if (done) requests_.erase(request);
    return done;
  }
  bool window(int64_t /*bytes*/, WindowMemory& /*made*/) override { fail("record", "it has no memory"); }
  void split_nodes() override { fail("record", "it has no nodes to split"); }
  void abort(int /*code*/, const std::string& /*message*/) override {}
  bool close() override { return true; }
  bool failure(std::string* /*message*/) const override { return false; }
  bool wants_own_thread() const override { return false; }

 private:
  Request post(const std::tuple<int, int, int>& key, bool send, int64_t bytes) {
    Record::Ends& ends = record_.ends_[key];
    round_ += std::exchange(moved_, false);
    RecordedMessage message;
    std::tie(message.from, message.to, message.tag) = key;
    message.bytes = bytes;
    (send ? message.from_round : message.to_round) = round_;
    (send ? ends.sends : ends.receives).push_back(message);
    const int64_t number = send ? ++ends.sent : ++ends.received;
    record_.match(ends);
    ++record_.progress_;
    requests_.emplace(++last_, std::pair(key, number));
    return last_;
  }

  Record& record_;
  int rank_;
  std::map<Request, std::pair<std::tuple<int, int, int>, int64_t>> requests_;
  Request last_ = 0;
  int round_ = 0;
  bool moved_ = false;  // a message has ended since the last was posted
};

Record::Record(int ranks) {
  for (int r = 0; r < ranks; ++r) transports_.push_back(std::make_unique<RecordTransport>(*this, r));
}

Record::~Record() = default;

void Record::match(Ends& ends) {
  while (!ends.sends.empty() && !ends.receives.empty()) {
    RecordedMessage message = ends.sends.front();
    const RecordedMessage& receive = ends.receives.front();
    check(message.bytes == receive.bytes, "record", "message: expected ", receive.bytes, " bytes, got ",
          message.bytes);
    message.to_round = receive.to_round;
    messages_.push_back(message);
    ends.sends.pop_front();
    ends.receives.pop_front();
  }
}

Link Record::link(int rank, int tag, int64_t chunk_bytes) {
  Link link;
  link.transport = transports_.at(rank).get();
  for (int r = 0; r < std::ssize(transports_); ++r) link.ranks.push_back(r);
  link.me = rank;
  link.tag = tag;
  link.chunk_bytes = chunk_bytes;
  return link;
}

bool Record::finish(std::vector<std::unique_ptr<Machine>>& machines) {
  for (;;) {
    const int64_t before = progress_;
    bool all = true;
    for (const auto& machine : machines) all &= machine->advance();
    if (all) return true;
    if (progress_ == before) return false;
  }
}

bool Record::all_matched() const {
  return std::all_of(ends_.begin(), ends_.end(), [](const auto& entry) {
    return entry.second.sends.empty() && entry.second.receives.empty();
  });
}

namespace {

// The progress of a rank: when it may post messages of a round, and when its ports are free.
struct Port {
  int round = 0;
  double posts = 0, ends = 0, out = 0, in = 0;  // seconds; ends: of the messages of this round

  void begin(int now) {
    if (now == round) return;
    round = now;
    posts = ends;
  }
};

}  // namespace

// Messages are ordered by the posting of both ends, so the rounds of a rank are in order.
double replay(const std::vector<RecordedMessage>& messages, int ranks, double latency, double bandwidth) {
  std::vector<Port> ports(static_cast<size_t>(ranks));
  double last = 0;
  for (const RecordedMessage& message : messages) {
    Port &from = ports.at(message.from), &to = ports.at(message.to);
    from.begin(message.from_round);
    to.begin(message.to_round);
    const double seconds = static_cast<double>(message.bytes) / bandwidth;
    const double start = std::max({from.posts, to.posts, from.out, to.in});
    from.out = to.in = start + seconds;
    from.ends = std::max(from.ends, start + seconds + latency);
    to.ends = std::max(to.ends, start + seconds + latency);
    last = std::max(last, to.ends);
  }
  return last;
}

}  // namespace mudd::dist
