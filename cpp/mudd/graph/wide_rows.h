// Rows of a tensor as kernels want them, fp32: the memory itself, or a widened copy in scratch of the worker. Ops
// whose kernels are written for fp32 read and write bf16 through these, a block of rows at a time, while it is in
// cache. Made and dropped inside one task, the last made first dropped.
#pragma once

#include <cstdint>

#include "mudd/base/types.h"

namespace mudd {

// Memory of one worker for the copies that it holds at a time; it grows to what was asked and stays.
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

// Rows [begin, end) of t to read. An empty t gives null rows.
class WideRows {
 public:
  WideRows(const Tensor& t, int64_t begin, int64_t end);
  // Row r of the tensor, begin <= r < end, lies at base() + r * stride().
  const float* base() const { return base_; }
  const float* row(int64_t r) const { return base_ + r * stride_; }
  int64_t stride() const { return stride_; }

 private:
  WorkerFloats copy_;
  const float* base_ = nullptr;
  int64_t stride_ = 0;
};

// Rows [begin, end) of t to write; bf16 rows are narrowed into t when this ends. read: the rows hold what t held
// (to be added to).
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

}  // namespace mudd
