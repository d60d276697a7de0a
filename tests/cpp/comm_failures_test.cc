// Comm over ranks as threads: ranks that fail, calls that differ, and the watchdog.
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm_ranks.h"
#include "doctest/doctest.h"
#include "mudd/base/check.h"

using namespace mudd;
using namespace mudd::dist;
using namespace mudd::test;

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
