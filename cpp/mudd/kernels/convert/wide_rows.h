// Rows of a tensor for kernels that are written for fp32: the memory itself, or for bf16 an fp32 copy in
// scratch of the worker. Ops convert a block of rows at a time, while it is in cache. Create and destroy these
// objects inside one task, in the order of a stack.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "mudd/base/row_tasks.h"
#include "mudd/base/types.h"

namespace mudd {

// The memory for the copies of one worker. It grows to the largest request and is kept.
class WorkerFloats {
 public:
  explicit WorkerFloats(int64_t n);
  ~WorkerFloats();
  WorkerFloats(const WorkerFloats&) = delete;
  WorkerFloats& operator=(const WorkerFloats&) = delete;
  float* data() const { return data_; }

 private:
  float* data_;
};

// Rows [begin, end) of t for reading. An empty t has null rows.
class WideRows {
 public:
  WideRows(const Tensor& t, int64_t begin, int64_t end);
  // The first row in memory; row r of the tensor (begin <= r < end) is at base() + r * stride().
  const float* base() const { return base_; }
  const float* row(int64_t r) const { return base_ + r * stride_; }
  int64_t stride() const { return stride_; }

 private:
  WorkerFloats copy_;
  const float* base_ = nullptr;
  int64_t stride_ = 0;
};

// Rows [begin, end) of t for writing; the destructor stores bf16 rows into t. read: load the values of t first,
// to add to them.
class NarrowRows {
 public:
  NarrowRows(const Tensor& t, int64_t begin, int64_t end, bool read = false);
  ~NarrowRows();
  NarrowRows(const NarrowRows&) = delete;
  NarrowRows& operator=(const NarrowRows&) = delete;
  float* base() const { return base_; }
  float* row(int64_t r) const { return base_ + r * stride_; }
  int64_t stride() const { return stride_; }

 private:
  Tensor t_;
  int64_t begin_, end_;
  WorkerFloats copy_;
  float* base_ = nullptr;
  int64_t stride_ = 0;
};

// Run parallel_rows for ops that use WideRows and NarrowRows. If one of the tensors is bf16, body gets blocks
// so small that the copies of all operands stay in L1.
template <class Body>
void parallel_wide_rows(std::initializer_list<const Tensor*> tensors, Body body) {
  constexpr int64_t kCopied = 1024;  // elements of a copy
  const Tensor& shape = **tensors.begin();
  const bool copies =
      std::any_of(tensors.begin(), tensors.end(), [](const Tensor* t) { return t->dtype == DType::bf16; });
  const int64_t step = copies ? std::max<int64_t>(1, kCopied / std::max<int64_t>(1, shape.cols)) : shape.rows;
  parallel_rows(shape.rows, shape.cols, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += step) body(at, std::min(end, at + step));
  });
}

}  // namespace mudd
