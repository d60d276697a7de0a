// Gradients between hosts as bf16: the kernels that cut, and sums that do not depend on the owner of an element.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "doctest/doctest.h"
#include "level_rows.h"
#include "mudd/base/check.h"
#include "mudd/base/shard_tree.h"
#include "mudd/dist/comm_threads.h"
#include "mudd/kernels/convert/convert.h"

using namespace mudd;
using namespace mudd::dist;
using namespace mudd::test;

namespace {

using Plane = std::vector<float>;

float cut(float x, int32_t offset) {
  return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + static_cast<uint32_t>(offset)) & 0xffff0000u);
}

// A value of either sign that needs all bits of fp32.
float element(int rank, int64_t i) {
  const float x = 1.0f / static_cast<float>(3 + rank * 7 + i % 101);
  return (rank + i) % 3 == 0 ? -x : x;
}

// The sum as the header of comm.h defines it. Of a power of two members every operand of the tree is cut, because
// partial sums are sent; else every member sends its own values to the owner.
Plane tree_of(std::vector<Plane> planes, int32_t offset) {
  const int members = static_cast<int>(planes.size());
  const bool halves = std::has_single_bit(planes.size());
  if (!halves)
    for (Plane& plane : planes)
      for (float& x : plane) x = cut(x, offset);
  shard_tree::pairs(members, [&](int left, int right) {
    for (size_t i = 0; i < planes[0].size(); ++i) {
      float &a = planes[left][i], b = planes[right][i];
      a = halves ? cut(a, offset) + cut(b, offset) : a + b;
    }
  });
  return planes[0];
}

// Sum the planes of the members, each a host; return each owner's pieces of the sum, and all sent bytes.
Plane sum_of(const std::vector<Plane>& planes, const std::vector<OwnedRange>& pieces, int64_t row,
             const Wire& wire, int64_t* bytes) {
  Plane found(planes[0].size(), NAN);
  CommOptions options;
  options.chunk_bytes = 100;
  const auto ranks = thread_ranks(static_cast<int>(planes.size()), 1, options);
  std::vector<std::string> errors(planes.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        Comm& comm = *ranks[r];
        Plane plane = planes[r];
        const auto sum = comm.sum_between_nodes(plane.data(), pieces, row, wire);
        comm.wait([&] { return sum->done(); });
        for (const OwnedRange& piece : pieces)
          if (piece.owner == comm.node())
            std::memcpy(&found[piece.offset], &plane[piece.offset], piece.length * sizeof(float));
        comm.barrier();
      } catch (const std::exception& e) {
        errors[r] = e.what();
        ranks[r]->fail(70, e.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) CHECK(error == "");
  *bytes = 0;
  for (const auto& rank : ranks) *bytes += rank->counters().at("sum").bytes;
  return found;
}

// Pieces of whole rows whose owners follow one another from `first`.
std::vector<OwnedRange> dealt(int64_t rows, int64_t width, int owners, int first) {
  std::vector<OwnedRange> pieces;
  for (int64_t row = 0, k = 0; row < rows; ++k) {
    const int64_t count = std::min<int64_t>(rows - row, 1 + (k * 5) % 9);
    pieces.push_back({row * width, count * width, static_cast<int>((first + k) % owners)});
    row += count;
  }
  return pieces;
}

bool same_bits(const Plane& a, const Plane& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("wire: a cut value has the bits of the formula, and over all offsets its mean is the value") {
  for_each_row(convert_rows(), [](const auto& row) {
    for (int64_t n : {1, 7, 8, 17, 33}) {
      Plane x(static_cast<size_t>(n)), y(x.size());
      std::vector<bf16> narrow(x.size());
      for (int64_t i = 0; i < n; ++i) x[i] = element(1, i);
      std::vector<double> means(x.size());
      bool same = true;
      for (int64_t t = 0; t < 65536; ++t) {
        const int32_t offset = cut_offset(t);
        row.kernels->cut(n, x.data(), offset, y.data());
        row.kernels->cut_narrow(n, x.data(), offset, narrow.data());
        for (int64_t i = 0; i < n; ++i) {
          same = same && y[i] == cut(x[i], offset) && narrow[i].bits == std::bit_cast<uint32_t>(y[i]) >> 16;
          means[i] += static_cast<double>(y[i]) / 65536;
        }
      }
      CHECK(same);
      for (int64_t i = 0; i < n; ++i) CHECK(means[i] == static_cast<double>(x[i]));
    }
    for (int32_t offset : {0, 1, 65535}) {
      const Plane x = {INFINITY, -INFINITY, std::bit_cast<float>(0x7fffffffu), NAN, 0.0f};
      bf16 got[5];
      row.kernels->cut_narrow(5, x.data(), offset, got);
      CHECK(got[0].bits == 0x7f80);
      CHECK(got[1].bits == 0xff80);
      for (int i : {2, 3}) CHECK((got[i].bits & 0x7fff) > 0x7f80);
      CHECK(got[4].bits == 0);
    }
  });
}

TEST_CASE("wire: a bf16 sum depends on the values and the number of hosts, not on the owners; half the bytes") {
  constexpr int64_t kRows = 700, kWidth = 7;
  for (int nodes = 2; nodes <= 8; ++nodes) {
    std::vector<Plane> planes(static_cast<size_t>(nodes), Plane(kRows * kWidth));
    for (int r = 0; r < nodes; ++r)
      for (int64_t i = 0; i < kRows * kWidth; ++i) planes[r][i] = element(r, i);
    const Wire wire = {.narrow = true, .offset = cut_offset(5 + nodes)};
    const Plane want = tree_of(planes, wire.offset);
    for (int first : {0, 1}) {
      int64_t bytes = 0, whole = 0;
      CHECK(same_bits(sum_of(planes, dealt(kRows, kWidth, nodes, first), 0, wire, &bytes), want));
      sum_of(planes, dealt(kRows, kWidth, nodes, first), 0, {}, &whole);
      CHECK(2 * bytes == whole);
    }
  }
}

TEST_CASE("wire: rows of a table in bf16 have the bits of the whole table") {
  constexpr int64_t kRows = 60, kWidth = 7;
  for (int nodes = 2; nodes <= 8; ++nodes) {
    std::vector<Plane> planes(static_cast<size_t>(nodes), Plane(kRows * kWidth));
    for (int r = 0; r < nodes; ++r)
      for (int64_t i = 0; i < kRows * kWidth; ++i)
        if ((i / kWidth + r) % 5 == 0) planes[r][i] = element(r, i);
    const Wire wire = {.narrow = true, .offset = cut_offset(nodes)};
    const Plane want = tree_of(planes, wire.offset);
    for (int first : {0, 1}) {
      int64_t rows = 0, whole = 0;
      const auto pieces = dealt(kRows, kWidth, nodes, first);
      CHECK(same_bits(sum_of(planes, pieces, kWidth, wire, &rows), want));
      CHECK(same_bits(sum_of(planes, pieces, 0, wire, &whole), want));
      CHECK(rows < whole);
    }
  }
}
