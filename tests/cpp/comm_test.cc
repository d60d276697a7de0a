// Comm over ranks as threads: collectives in one node and between nodes, windows, failures, the watchdog.
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "doctest/doctest.h"
#include "mudd/base/check.h"
#include "mudd/base/shard_tree.h"
#include "mudd/dist/comm_threads.h"

using namespace mudd;
using namespace mudd::dist;

namespace {

using Work = std::function<void(Comm&)>;

// Runs work on every rank; what it threw, by rank ("" for nothing). A rank that throws fails the job.
std::vector<std::string> on_ranks(int world, int node_size, const CommOptions& options, const Work& work) {
  const auto ranks = thread_ranks(world, node_size, options);
  std::vector<std::string> errors(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int r = 0; r < world; ++r)
    threads.emplace_back([&, r] {
      try {
        work(*ranks[r]);
      } catch (const std::exception& e) {
        errors[r] = e.what();
        ranks[r]->fail(70, e.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void on_good_ranks(int world, int node_size, const CommOptions& options, const Work& work) {
  for (const std::string& error : on_ranks(world, node_size, options, work)) CHECK(error == "");
}

struct Shape {
  int world, node_size;
};
const Shape kShapes[] = {{1, 1}, {2, 2}, {2, 1}, {3, 1}, {4, 4}, {4, 2}, {6, 2}, {8, 1}, {5, 1}};

// A value that depends on rank and element.
float element(int rank, int64_t i) { return 1.0f / static_cast<float>(3 + rank * 7 + i % 101); }

std::vector<OwnedRange> cut(int64_t n, int owners) {
  std::vector<OwnedRange> pieces;
  for (int64_t at = 0, k = 0; at < n; ++k) {
    const int64_t length = std::min<int64_t>(n - at, 1 + (k * 37) % 90);
    pieces.push_back({at, length, static_cast<int>((3 * k + k / 7) % owners)});
    at += length;
  }
  return pieces;
}

}  // namespace

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

TEST_CASE("comm: a rank that fails ends the waits of all others, by name, phase and step") {
  for (const Shape& shape : {Shape{4, 4}, Shape{4, 1}, Shape{4, 2}}) {
    const auto errors = on_ranks(shape.world, shape.node_size, {}, [](Comm& comm) {
      comm.barrier();
      comm.set_phase(Phase::backward, 17);
      if (comm.rank() == 2) throw StateError("no gradient today");
      comm.barrier();
    });
    for (int r : {0, 1, 3}) CHECK(errors[r] == "[ranks] rank 2 in step 17 (backward) failed: no gradient today");
  }
}

TEST_CASE("comm: calls that differ are refused, both named by operation and place") {
  struct Crafted {
    const char* text;  // in the message, after "file.py:line" of its place in the list
    std::function<void(Comm&, Site)> call;
  };
  const auto gather = [](int64_t bytes) {
    return [bytes](Comm& comm, Site site) {
      std::vector<char> mine(static_cast<size_t>(bytes)), all(static_cast<size_t>(bytes * comm.world()));
      comm.all_gather(mine.data(), bytes, all.data(), site);
    };
  };
  const auto broadcast = [](int64_t bytes, int root) {
    return [bytes, root](Comm& comm, Site site) {
      std::vector<char> data(static_cast<size_t>(bytes));
      comm.broadcast(data.data(), bytes, root, site);
    };
  };
  const std::vector<Crafted> calls = {{"all_gather(1 bytes) at ", gather(1)},
                                      {"all_gather(8 bytes) at ", gather(8)},
                                      {"all_gather(700000 bytes) at ", gather(700'000)},
                                      {"broadcast(8 bytes, root 0) at ", broadcast(8, 0)},
                                      {"broadcast(8 bytes, root 1) at ", broadcast(8, 1)},
                                      {"broadcast(700000 bytes, root 1) at ", broadcast(700'000, 1)},
                                      {"barrier at ", [](Comm& comm, Site site) { comm.barrier(site); }},
                                      {"barrier at ", [](Comm& comm, Site site) { comm.barrier(site); }}};
  CommOptions debug;
  debug.debug = true;
  int crafted = 0;
  for (const int node_size : {2, 1})
    for (int first = 0; first < std::ssize(calls); ++first)
      for (int second = 0; second < first; ++second, ++crafted) {
        const auto errors = on_ranks(2, node_size, debug, [&](Comm& comm) {
          comm.barrier({"same.py", 1});
          const int mine = comm.rank() == 0 ? first : second;
          calls[mine].call(comm, {"file.py", 10 + mine});
        });
        const std::string both = errors[0] + errors[1];
        for (const int mine : {first, second})
          CHECK(both.find(calls[mine].text + ("file.py:" + std::to_string(10 + mine))) != std::string::npos);
      }
  CHECK(crafted == 56);
}

TEST_CASE("comm: other operations and lengths are refused inside a node without debug mode too") {
  const auto lengths = on_ranks(2, 2, {}, [](Comm& comm) {
    char all[16], mine[8] = {};
    comm.all_gather(mine, comm.rank() + 1, all);
  });
  CHECK((lengths[0] + lengths[1]).find("all_gather(2 bytes)") != std::string::npos);
}

TEST_CASE("comm: the watchdog ends a job without progress and names every rank's last phase") {
  CommOptions options;
  options.hang_timeout = 0.2;
  std::atomic<bool> over{false};
  const auto errors = on_ranks(2, 2, options, [&](Comm& comm) {
    comm.set_phase(comm.rank() == 0 ? Phase::verdict : Phase::forward, 3);
    if (comm.rank() == 1) {  // it computes
      while (!over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return;
    }
    try {
      comm.barrier();
    } catch (...) {
      over = true;
      throw;
    }
  });
  CHECK(errors[0].find("look first at rank 1 in step 3 (forward)") != std::string::npos);
  CHECK(errors[0].find("rank 0 in step 3 (verdict), waiting for others") != std::string::npos);
  const auto circle = on_ranks(2, 2, options, [&](Comm& comm) { comm.wait([] { return false; }); });
  CHECK((circle[0] + circle[1]).find("no progress for 0.2 s") != std::string::npos);
}

TEST_CASE("comm: the watchdog names the rank of another node whose message does not come") {
  CommOptions options;
  options.hang_timeout = 0.6;
  const auto errors = on_ranks(3, 1, options, [&](Comm& comm) {
    comm.set_phase(Phase::verdict, 3);
    char mine = 0, all[3];
    comm.all_gather(&mine, 1, all);
    if (comm.rank() == 1) return comm.watch(0);  // as silent as a stopped one, whose watchdog is stopped too
    comm.set_phase(Phase::verdict, 4);
    comm.barrier();
  });
  const std::string& report = errors[errors[0].empty() ? 2 : 0];
  INFO(report);
  const std::string stopped = "look first at rank 1 (another node), last message in step 3 (verdict), ";
  const bool awaited = report.find(stopped + "the next one is awaited") != std::string::npos;
  CHECK((awaited || report.find(stopped + "it takes no message") != std::string::npos));
}

TEST_CASE("comm: who waits for a rank that works and says so is not hung") {
  CommOptions options;
  options.hang_timeout = 0.8;
  on_good_ranks(2, 2, options, [&](Comm& comm) {
    for (int step = 0; step < 40 && comm.rank() == 1; ++step) {
      comm.set_phase(Phase::save, step);
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    comm.barrier();
  });
}

TEST_CASE("comm: phases have names") {
  for (const char* name : kPhaseNames) CHECK(name_of(parse_phase(name)) == std::string(name));
  CHECK_THROWS_AS(parse_phase("lunch"), Error);
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
