// Comm over ranks as threads: collectives in one node and between nodes, and windows.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "comm_ranks.h"
#include "doctest/doctest.h"
#include "mudd/base/check.h"
#include "mudd/base/shard_tree.h"

using namespace mudd;
using namespace mudd::dist;
using namespace mudd::test;

TEST_CASE("comm: all_gather and broadcast bring the bytes of every rank, of any length") {
  for (const Shape& shape : kShapes) {
    CAPTURE(shape.world);
    CAPTURE(shape.node_size);
    CommOptions options;
    options.debug = true;
    options.chunk_bytes = 1 << 16;
    on_good_ranks(shape.world, shape.node_size, options, [](Comm& comm) {
      for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{8}, int64_t{700'001}}) {
        std::vector<char> mine(static_cast<size_t>(bytes), static_cast<char>('a' + comm.rank()));
        std::vector<char> all(static_cast<size_t>(bytes * comm.world()));
        comm.all_gather(mine.data(), bytes, all.data());
        for (int64_t i = 0; i < std::ssize(all); ++i)
          if (all[i] != static_cast<char>('a' + i / bytes)) throw StateError("all_gather: another byte");
        for (int root = 0; root < comm.world(); ++root) {
          std::vector<char> data(static_cast<size_t>(bytes), static_cast<char>(comm.rank() == root ? 'x' : 'y'));
          comm.broadcast(data.data(), bytes, root);
          if (std::count(data.begin(), data.end(), 'x') != bytes) throw StateError("broadcast: another byte");
        }
        comm.barrier();
        comm.node_barrier();
      }
      if (!comm.close()) throw StateError("close");
    });
  }
}

TEST_CASE("comm: sums of tables have the bits of the tree and send the rows that are there") {
  constexpr int64_t kRows = 60, kWidth = 7, kCount = kRows * kWidth;
  for (int nodes = 2; nodes <= 8; ++nodes) {
    std::vector<std::vector<float>> planes(static_cast<size_t>(nodes), std::vector<float>(kCount));
    for (int r = 0; r < nodes; ++r)
      for (int64_t i = 0; i < kCount; ++i)
        if ((i / kWidth + r) % 5 == 0) planes[r][i] = element(r, i);
    std::vector<std::vector<float>> tree = planes;
    shard_tree::pairs(nodes, [&](int left, int right) {
      for (int64_t i = 0; i < kCount; ++i) tree[left][i] += tree[right][i];
    });
    std::vector<OwnedRange> pieces;
    for (int node = 0; node < nodes; ++node) {
      const int64_t begin = kRows * node / nodes, end = kRows * (node + 1) / nodes;
      pieces.push_back({.offset = begin * kWidth, .length = (end - begin) * kWidth, .owner = node});
    }
    on_good_ranks(nodes, 1, {.chunk_bytes = 100}, [&](Comm& comm) {
      std::vector<float> plane = planes[comm.rank()];
      const auto sum = comm.sum_between_nodes(plane.data(), pieces, kWidth);
      comm.wait([&] { return sum->done(); });
      const OwnedRange& mine = pieces[comm.rank()];
      if (std::memcmp(plane.data() + mine.offset, tree[0].data() + mine.offset, mine.length * 4) != 0)
        throw StateError("other bits than the tree");
      if (nodes == 2 && comm.counters().at("sum").bytes > kCount * 4 / 2 / 4)
        throw StateError("rows of zeros were sent");
      comm.barrier();
    });
  }
}

TEST_CASE("comm: messages in transit are hidden time, unless the rank waits") {
  std::atomic<bool> late{false};
  on_good_ranks(2, 1, {}, [&](Comm& comm) {
    if (comm.hidden_seconds() != 0) throw StateError("hidden before any message");
    std::vector<float> plane(64, 1.0F);
    const std::vector<OwnedRange> pieces = {{.offset = 0, .length = 32, .owner = 0},
                                            {.offset = 32, .length = 32, .owner = 1}};
    while (comm.rank() == 1 && !late) std::this_thread::yield();
    const double waited = comm.waited_seconds();
    const auto sum = comm.sum_between_nodes(plane.data(), pieces);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (comm.rank() == 0 && (comm.hidden_seconds() <= 0 || comm.waited_seconds() != waited))
      throw StateError("the message of rank 0 was in transit while it did not wait");
    late = true;
    const double hidden = comm.hidden_seconds();
    int tries = 0;
    comm.wait([&] { return ++tries > 2000 && sum->done(); });
    if (comm.waited_seconds() <= waited) throw StateError("the wait took no time");
    if (comm.hidden_seconds() - hidden > comm.waited_seconds() - waited) throw StateError("waiting was hidden");
    comm.barrier();
  });
}

TEST_CASE("comm: nobody leaves a barrier before all have come") {
  for (const Shape& shape : kShapes) {
    std::atomic<int> come{0};
    on_good_ranks(shape.world, shape.node_size, {}, [&](Comm& comm) {
      for (int round = 1; round <= 20; ++round) {
        ++come;
        comm.barrier();
        if (come.load() < round * comm.world()) throw StateError("left early");
      }
    });
  }
}

TEST_CASE("comm: windows are zeroed, of any size per rank, and seen by the whole node") {
  on_good_ranks(4, 2, {}, [](Comm& comm) {
    for (int k = 0; k < 3; ++k) {
      const auto window = comm.window(comm.node_rank() == k % 2 ? 0 : 5000);
      std::byte* mine = window->part(comm.node_rank());
      for (int64_t i = 0; i < window->bytes(comm.node_rank()); ++i) {
        if (mine[i] != std::byte{0}) throw StateError("not zero");
        mine[i] = static_cast<std::byte>(comm.rank());
      }
      comm.node_barrier();
      const int other = 1 - comm.node_rank();
      if (window->bytes(other) > 0 && window->part(other)[4999] != static_cast<std::byte>(comm.node() * 2 + other))
        throw StateError("not the other's memory");
    }
  });
}

TEST_CASE("comm: sums between nodes have the bits of the tree, and gathers bring every piece") {
  constexpr int64_t kCount = 5000;
  for (int nodes = 1; nodes <= 8; ++nodes) {
    const std::vector<OwnedRange> pieces = cut(kCount, nodes);
    std::vector<std::vector<float>> planes(static_cast<size_t>(nodes), std::vector<float>(kCount));
    for (int r = 0; r < nodes; ++r)
      for (int64_t i = 0; i < kCount; ++i) planes[r][i] = element(r, i);
    std::vector<std::vector<float>> tree = planes;
    shard_tree::pairs(nodes, [&](int left, int right) {
      for (int64_t i = 0; i < kCount; ++i) tree[left][i] += tree[right][i];
    });
    CommOptions options;
    options.chunk_bytes = 1000;
    on_good_ranks(nodes, 1, options, [&](Comm& comm) {
      std::vector<float> plane = planes[comm.node()];
      const auto sum = comm.sum_between_nodes(plane.data(), pieces);
      comm.wait([&] { return sum->done(); });
      for (const OwnedRange& piece : pieces)
        if (piece.owner == comm.node() &&
            std::memcmp(&plane[piece.offset], &tree[0][piece.offset], piece.length * sizeof(float)) != 0)
          throw StateError("another sum");
      const auto gather = comm.gather_between_nodes(plane.data(), sizeof(float), pieces);
      comm.wait([&] { return gather->done(); });
      if (plane != tree[0]) throw StateError("another piece");
      comm.barrier();
      const int64_t sent = comm.counters().at("sum").bytes;
      if (nodes > 1 && sent == 0) throw StateError("nothing counted");
    });
  }
}

TEST_CASE("comm: a node that is split goes on by messages, its windows stay") {
  on_good_ranks(4, 2, {}, [](Comm& comm) {
    const auto before = comm.window(8);
    *before->part(comm.node_rank()) = static_cast<std::byte>(10 + comm.rank());
    comm.node_barrier();
    const int old_rank = comm.node_rank(), old_first = comm.rank() - old_rank;
    comm.split_nodes();
    CHECK(comm.node_size() == 1);
    CHECK(comm.nodes() == 4);
    CHECK(comm.node_rank() == 0);
    CHECK(static_cast<int>(*before->part(1 - old_rank)) == 10 + old_first + 1 - old_rank);
    CHECK(comm.window(8)->bytes(0) == 8);
    const char mine = static_cast<char>('a' + comm.rank());
    char all[4];
    comm.all_gather(&mine, 1, all);
    CHECK(std::string(all, 4) == "abcd");
    comm.split_nodes();  // again: nothing is left to split
    comm.barrier();
  });
}

TEST_CASE("comm: pieces of any length reach their member, inside and between nodes, in several groups at once") {
  for (const Shape& shape : kShapes) {
    for (const int members : {1, 2, 4}) {
      if (shape.world % members != 0) continue;
      CAPTURE(shape.world);
      CAPTURE(shape.node_size);
      CAPTURE(members);
      CommOptions options;
      options.debug = true;
      options.chunk_bytes = 1 << 10;
      on_good_ranks(shape.world, shape.node_size, options, [members](Comm& comm) {
        const int first = comm.rank() / members * members;
        std::vector<int> group(static_cast<size_t>(members));
        std::iota(group.begin(), group.end(), first);
        const auto length = [](int from, int to, int k) {
          return int64_t{(from * 31 + to * 17 + k * 7) % 40} * 97;
        };
        const auto letter = [](int from, int to, int k) { return static_cast<std::byte>(from * 16 + to * 2 + k); };
        std::vector<std::vector<std::byte>> out, in;
        std::vector<Piece> sends, receives;
        for (int m = 0; m < members; ++m)
          for (int k = 0; k < 2; ++k) {
            out.emplace_back(length(comm.rank(), first + m, k), letter(comm.rank(), first + m, k));
            in.emplace_back(length(first + m, comm.rank(), k));
            sends.push_back({m, out.back().data(), std::ssize(out.back())});
            receives.push_back({m, in.back().data(), std::ssize(in.back())});
          }
        comm.set_phase(Phase::forward, 3);
        comm.exchange(group, sends, receives);
        for (int m = 0; m < members; ++m)
          for (int k = 0; k < 2; ++k)
            for (const std::byte b : in[static_cast<size_t>(2 * m + k)])
              if (b != letter(first + m, comm.rank(), k)) throw StateError("exchange: another byte");
      });
    }
  }
}

TEST_CASE("comm: holders of the same part add it by the tree and give each other theirs") {
  for (const Shape& shape : {Shape{2, 2}, Shape{4, 2}, Shape{4, 1}, Shape{8, 2}, Shape{6, 1}}) {
    CAPTURE(shape.world);
    CAPTURE(shape.node_size);
    on_good_ranks(shape.world, shape.node_size, {}, [](Comm& comm) {
      std::vector<int> holders;
      for (int r = comm.rank() % 2; r < comm.world(); r += 2) holders.push_back(r);
      const int me = comm.rank() / 2, n = static_cast<int>(holders.size());
      constexpr int64_t kCount = 5000;
      std::vector<float> data(kCount);
      for (int64_t i = 0; i < kCount; ++i) data[i] = element(comm.rank(), i);
      const std::vector<OwnedRange> pieces = cut(kCount, n);
      const auto sum = comm.sum_among(holders, data.data(), pieces);
      comm.wait([&] { return sum->done(); });
      const auto gather = comm.gather_among(holders, data.data(), sizeof(float), pieces);
      comm.wait([&] { return gather->done(); });
      for (int64_t i = 0; i < kCount; ++i) {
        shard_tree::Counter<float> tree;
        float want = 0;
        for (int h = 0; h < n; ++h) want = tree.add(h, n, element(holders[h], i));
        if (data[i] != want) throw StateError("sum_among: another sum at holder " + std::to_string(me));
      }
    });
  }
}
