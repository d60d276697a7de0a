// Values with heads: [B, T, H*hd], or [B, T, H, hd]. Both are read with two strides, so a value may be a slice
// of a slab (fused q, k, v) in either form.
#pragma once

#include <cstdint>

#include "mudd/base/check.h"
#include "mudd/base/types.h"

namespace mudd {

struct HeadShape {
  int64_t batch = 0, time = 0, heads = 0, dim = 0;  // B, T, H, hd

  int64_t rows() const { return batch * time; }
  // Elements from one position to the next, and from one head to the next.
  int64_t row_stride(const Tensor& t) const { return t.cols == dim ? heads * t.stride : t.stride; }
  int64_t head_stride(const Tensor& t) const { return t.cols == dim ? t.stride : dim; }
};

// Read the shape of `x`; `heads` 0 means "not given", which is valid only for a value with four axes.
inline HeadShape head_shape(const char* op, const char* argument, const TensorSpec& x, int64_t heads) {
  check(is_real(x), op, argument, ": expected float32, got ", name_of(x.dtype));
  const size_t axes = x.shape.size();
  check(axes == 3 || axes == 4, op, argument, ": expected [B, T, H*hd] or [B, T, H, hd], got ", x.text());
  if (axes == 4) {
    check(heads == 0 || heads == x.shape[2], op, argument, ": expected ", heads, " heads, got ", x.text());
    heads = x.shape[2];
  }
  check(heads >= 1, op, argument, ": expected its number of heads to be given (n_head >= 1), got ", heads);
  const int64_t width = axes == 4 ? heads * x.shape[3] : x.shape[2];
  check(width >= heads && width % heads == 0, op, argument, ": expected a width divisible by ", heads,
        " heads, got ", x.text());
  return {x.shape[0], x.shape[1], heads, width / heads};
}

}  // namespace mudd
