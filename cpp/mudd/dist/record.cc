#include "mudd/dist/record.h"

#include <algorithm>
#include <string>
#include <utility>

#include "mudd/base/check.h"

namespace mudd::dist {

// One rank's end. A request is the number of its message among those with equal ends and tag.
class RecordTransport final : public Transport {
 public:
  RecordTransport(Record& record, int rank) : record_(record), rank_(rank) {}

  Place open() override {
    Place place;
    place.rank = rank_;
    place.world = static_cast<int>(record_.transports_.size());
    return place;
  }
  Request isend(const void* /*data*/, int64_t bytes, int to, int tag) override {
    record_.messages_.push_back({rank_, to, tag, bytes, record_.turn_});
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
    if (done) requests_.erase(request);
    return done;
  }
  bool window(int64_t /*bytes*/, WindowMemory& /*made*/) override { fail("record", "it has no memory"); }
  void abort(int /*code*/, const std::string& /*message*/) override {}
  bool close() override { return true; }
  bool failure(std::string* /*message*/) const override { return false; }
  bool wants_own_thread() const override { return false; }

 private:
  Request post(const std::tuple<int, int, int>& key, bool send, int64_t bytes) {
    Record::Ends& ends = record_.ends_[key];
    (send ? ends.sent_bytes : ends.received_bytes).push_back(bytes);
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
};

Record::Record(int ranks) {
  for (int r = 0; r < ranks; ++r) transports_.push_back(std::make_unique<RecordTransport>(*this, r));
}

Record::~Record() = default;

void Record::match(Ends& ends) {
  while (!ends.sent_bytes.empty() && !ends.received_bytes.empty()) {
    check(ends.sent_bytes.front() == ends.received_bytes.front(), "record", "message: expected ",
          ends.received_bytes.front(), " bytes, got ", ends.sent_bytes.front());
    ends.sent_bytes.pop_front();
    ends.received_bytes.pop_front();
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
  for (;; ++turn_) {
    const int64_t before = progress_;
    bool all = true;
    for (const auto& machine : machines) all &= machine->advance();
    if (all) return true;
    if (progress_ == before) return false;
  }
}

bool Record::all_matched() const {
  return std::all_of(ends_.begin(), ends_.end(), [](const auto& entry) {
    return entry.second.sent_bytes.empty() && entry.second.received_bytes.empty();
  });
}

}  // namespace mudd::dist
