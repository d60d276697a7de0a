// Ranks as threads of the tests of Comm, their values and their pieces.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "doctest/doctest.h"
#include "mudd/dist/comm_threads.h"

namespace mudd::test {

using Work = std::function<void(dist::Comm&)>;

// Runs work on every rank; what it threw, by rank ("" for nothing). A rank that throws fails the job.
inline std::vector<std::string> on_ranks(int world, int node_size, const dist::CommOptions& options,
                                         const Work& work) {
  const auto ranks = dist::thread_ranks(world, node_size, options);
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

inline void on_good_ranks(int world, int node_size, const dist::CommOptions& options, const Work& work) {
  for (const std::string& error : on_ranks(world, node_size, options, work)) CHECK(error == "");
}

struct Shape {
  int world, node_size;
};
inline constexpr Shape kShapes[] = {{1, 1}, {2, 2}, {2, 1}, {3, 1}, {4, 4}, {4, 2}, {6, 2}, {8, 1}, {5, 1}};

// A value that depends on rank and element.
inline float element(int rank, int64_t i) { return 1.0f / static_cast<float>(3 + rank * 7 + i % 101); }

inline std::vector<dist::OwnedRange> cut(int64_t n, int owners) {
  std::vector<dist::OwnedRange> pieces;
  for (int64_t at = 0, k = 0; at < n; ++k) {
    const int64_t length = std::min<int64_t>(n - at, 1 + (k * 37) % 90);
    pieces.push_back({at, length, static_cast<int>((3 * k + k / 7) % owners)});
    at += length;
  }
  return pieces;
}

}  // namespace mudd::test
