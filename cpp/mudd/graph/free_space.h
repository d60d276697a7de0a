// Free space in an arena over time: which offsets no buffer takes during a span of schedule positions.
#pragma once

#include <cstdint>
#include <vector>

namespace mudd {

// A segment tree over positions. Every tree node keeps two unions of byte ranges: of the buffers that are alive
// over all of its positions, and of those that are alive at any of them. Neighbouring ranges merge, so that the
// unions stay short although many buffers are alive at once.
class FreeSpace {
 public:
  explicit FreeSpace(int positions);

  // The lowest offset where `bytes` are free at all positions from first to last, inclusive.
  int64_t lowest(int first, int last, int64_t bytes) const;
  void take(int first, int last, int64_t offset, int64_t bytes);
  // Byte ranges that calls of lowest() compared so far, for tests.
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
  // What is taken at some position from first to last below tree node `node`, which spans begin to end.
  void collect(int node, int begin, int end, int first, int last) const;
  void take(int node, int begin, int end, int first, int last, Range taken);

  int size_ = 1;
  std::vector<TreeNode> nodes_;  // children of i: 2 i and 2 i + 1
  mutable std::vector<const Ranges*> relevant_;
  mutable int64_t compared_ = 0;
};

}  // namespace mudd
