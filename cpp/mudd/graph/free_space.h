// Free space in an arena over time: the offsets without a buffer during a span of schedule positions.
#pragma once

#include <cstdint>
#include <vector>

namespace mudd {

// A segment tree over positions. Every tree node keeps two unions of byte ranges: of the buffers that are alive
// at all of its positions, and at any of them. Adjacent ranges merge, so the unions stay short even with many
// live buffers.
class FreeSpace {
 public:
  explicit FreeSpace(int positions);

  // Return the lowest offset with `bytes` free bytes at all positions from first to last, inclusive.
  int64_t lowest(int first, int last, int64_t bytes) const;
  void take(int first, int last, int64_t offset, int64_t bytes);
  // Return the count of byte ranges that lowest() has compared so far, for tests.
  int64_t compared() const { return compared_; }

 private:
  struct Range {
    int64_t begin = 0, end = 0;
  };
  using Ranges = std::vector<Range>;  // ascending, with gaps in between
  struct TreeNode {
    Ranges throughout, sometimes;
  };
  static void add(Ranges& ranges, Range taken);
  // Append to relevant_ the ranges in use at any position of [first, last], from the subtree of `node`, which
  // covers the positions [begin, end).
  void collect(int node, int begin, int end, int first, int last) const;
  void take(int node, int begin, int end, int first, int last, Range taken);

  int size_ = 1;
  std::vector<TreeNode> nodes_;  // children of i: 2 i and 2 i + 1
  mutable std::vector<const Ranges*> relevant_;
  mutable int64_t compared_ = 0;
};

}  // namespace mudd
