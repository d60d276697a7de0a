// The messages that the collectives post for many ranks: every send has its receive, no rank waits in a circle,
// and the volume equals the formulas.
#include "testing/record.h"

#include <bit>
#include <functional>

#include "doctest/doctest.h"

using namespace mudd::dist;

namespace {

using Make = std::function<std::unique_ptr<Machine>(Link)>;

// Runs a collective of n ranks; bytes sent by each rank.
std::vector<int64_t> sent_by_rank(int n, const Make& make, int64_t* messages, int64_t chunk_bytes = 1 << 30) {
  Record record(n);
  std::vector<std::unique_ptr<Machine>> machines;
  for (int r = 0; r < n; ++r) machines.push_back(make(record.link(r, 7, chunk_bytes)));
  CHECK(record.finish(machines));
  CHECK(record.all_matched());
  std::vector<int64_t> bytes(static_cast<size_t>(n));
  for (const RecordedMessage& message : record.messages()) {
    CHECK(message.from != message.to);
    bytes[message.from] += message.bytes;
  }
  *messages = std::ssize(record.messages());
  return bytes;
}

// Buckets, each divided among all owners, like a gradient buffer.
std::vector<OwnedRange> buckets(int owners, int count, int64_t length) {
  std::vector<OwnedRange> pieces;
  for (int b = 0; b < count; ++b)
    for (int owner = 0; owner < owners; ++owner) pieces.push_back({std::ssize(pieces) * length, length, owner});
  return pieces;
}

}  // namespace

TEST_CASE("record: sums and gathers of pieces send (n - 1) / n of the plane a rank, in log2 n rounds") {
  for (const int n : {2, 3, 6, 8, 64, 1024}) {
    CAPTURE(n);
    const std::vector<OwnedRange> pieces = buckets(n, 2, 4096);
    const int64_t plane = std::ssize(pieces) * 4096 * 4, want = plane / n * (n - 1);
    const int rounds =
        std::has_single_bit(static_cast<unsigned>(n)) ? std::bit_width(static_cast<unsigned>(n)) - 1 : n - 1;
    int64_t messages = 0;
    const auto sums =
        sent_by_rank(n, [&](Link l) { return std::make_unique<PieceSum>(l, nullptr, pieces); }, &messages);
    CHECK(messages == static_cast<int64_t>(n) * rounds);
    const auto gathers =
        sent_by_rank(n, [&](Link l) { return std::make_unique<PieceGather>(l, nullptr, 4, pieces); }, &messages);
    CHECK(messages == static_cast<int64_t>(n) * rounds);
    for (int r = 0; r < n; ++r) {
      CHECK(std::abs(sums[r] - want) * 50 <= want);  // within 2 %
      CHECK(std::abs(gathers[r] - want) * 50 <= want);
    }
  }
}

TEST_CASE("record: control messages reach every rank in log2 n rounds") {
  for (const int n : {2, 5, 64, 1000, 1024}) {
    CAPTURE(n);
    int64_t messages = 0, total = 0;
    const auto blocks =
        sent_by_rank(n, [&](Link l) { return std::make_unique<BlockGather>(l, nullptr, 24); }, &messages);
    for (const int64_t bytes : blocks) CHECK(bytes == 24 * (n - 1));
    CHECK(messages <= 2 * static_cast<int64_t>(n) * std::bit_width(static_cast<unsigned>(n - 1)));
    const auto tree = sent_by_rank(
        n, [&](Link l) { return std::make_unique<TreeBroadcast>(l, nullptr, 100, n / 3); }, &messages);
    for (const int64_t bytes : tree) total += bytes;
    CHECK(messages == n - 1);
    CHECK(total == 100 * static_cast<int64_t>(n - 1));
  }
}

TEST_CASE(
    "record: the replay over latency and bandwidth is within 5 % of the formula where no port has two messages") {
  constexpr double kLatency = 20e-6, kBandwidth = 3.1e9;
  for (const int n : {2, 16, 64, 1024}) {
    CAPTURE(n);
    const std::vector<OwnedRange> pieces = buckets(n, 1, 4096);
    const double plane = static_cast<double>(n) * 4096 * 4, rounds = std::bit_width(static_cast<unsigned>(n)) - 1;
    const double want = rounds * kLatency + (n - 1) * plane / n / kBandwidth;
    for (const Make& make : {Make([&](Link l) { return std::make_unique<PieceSum>(l, nullptr, pieces); }),
                             Make([&](Link l) { return std::make_unique<PieceGather>(l, nullptr, 4, pieces); }),
                             Make([&](Link l) { return std::make_unique<BlockGather>(l, nullptr, 4096 * 4); })}) {
      Record record(n);
      std::vector<std::unique_ptr<Machine>> machines;
      for (int r = 0; r < n; ++r) machines.push_back(make(record.link(r, 7)));
      CHECK(record.finish(machines));
      CHECK(replay(record.messages(), n, kLatency, kBandwidth) == doctest::Approx(want).epsilon(0.05));
    }
  }
  // Both messages go through one port: one after the other.
  CHECK(replay({{0, 1, 7, 1000, 0, 0}, {2, 1, 7, 1000, 0, 0}}, 3, 1, 1000) == doctest::Approx(3));
}

TEST_CASE("record: long messages are cut, and as many bytes arrive") {
  const std::vector<OwnedRange> pieces = buckets(8, 1, 1 << 17);
  int64_t whole = 0, cut = 0;
  const Make make = [&](Link l) { return std::make_unique<PieceSum>(l, nullptr, pieces); };
  CHECK(sent_by_rank(8, make, &whole) == sent_by_rank(8, make, &cut, 1 << 18));
  CHECK(cut > whole);
}

TEST_CASE("record: pieces that are not the same on all ranks do not end in silence") {
  Record record(4);
  std::vector<std::unique_ptr<Machine>> machines;
  for (int r = 0; r < 4; ++r)
    machines.push_back(std::make_unique<BlockGather>(record.link(r, r == 3 ? 8 : 7), nullptr, 24));
  CHECK_FALSE(record.finish(machines));
  CHECK_FALSE(record.all_matched());
}

TEST_CASE("record: an exchange of pieces posts one message a piece that another rank gets, of its bytes") {
  for (const int n : {2, 3, 64, 1024}) {
    CAPTURE(n);
    const auto bytes = [](int from, int to) {  // between neighbours, as in mesh.expert: not a million messages
      return int64_t{from / 64 != to / 64 || (from * 7 + to * 3) % 5 == 0 ? 0 : 8};
    };
    const Make make = [&](Link link) {
      std::vector<Piece> sends, receives;
      for (int m = 0; m < link.size(); ++m) {
        if (m == link.me) continue;
        sends.push_back({m, nullptr, bytes(link.me, m)});
        receives.push_back({m, nullptr, bytes(m, link.me)});
      }
      return std::make_unique<PieceExchange>(link, sends, receives);
    };
    int64_t messages = 0, pieces = 0;
    const std::vector<int64_t> sent = sent_by_rank(n, make, &messages);
    for (int from = 0; from < n; ++from) {
      int64_t want = 0;
      for (int to = 0; to < n; ++to) {
        want += to == from ? 0 : bytes(from, to);
        pieces += to != from && bytes(from, to) > 0;
      }
      CHECK(sent[from] == want);
    }
    CHECK(messages == pieces);
  }
}
