#include "mudd/kernels/convert/wide_rows.h"

#include <vector>

#include "mudd/base/arena.h"
#include "mudd/kernels/convert/convert.h"

namespace mudd {
namespace {

// The fp32 copies of this thread. They are destroyed in reverse order, so the depth is the index.
struct Stack {
  std::vector<Arena> places;
  size_t depth = 0;
};
thread_local Stack stack;

bool narrow_type(const Tensor& t) { return t && t.dtype == DType::bf16; }
int64_t copied(const Tensor& t, int64_t begin, int64_t end) { return narrow_type(t) ? (end - begin) * t.cols : 0; }
bf16* row_of(const Tensor& t, int64_t r) { return static_cast<bf16*>(t.data) + r * t.stride; }

void widen_rows(const Tensor& t, int64_t begin, int64_t end, float* to) {
  const ConvertKernels& kernels = convert_kernels();
  if (t.stride == t.cols) return kernels.widen((end - begin) * t.cols, row_of(t, begin), to);
  for (int64_t r = begin; r < end; ++r) kernels.widen(t.cols, row_of(t, r), to + (r - begin) * t.cols);
}

}  // namespace

WorkerFloats::WorkerFloats(int64_t n) : data_(nullptr) {
  if (n == 0) return;
  const int64_t bytes = aligned(n * static_cast<int64_t>(sizeof(float)));
  if (stack.places.size() <= stack.depth) stack.places.resize(stack.depth + 1);
  Arena& place = stack.places[stack.depth];
  if (place.bytes() < bytes) place = Arena(bytes);
  data_ = reinterpret_cast<float*>(place.data());
  ++stack.depth;
}

WorkerFloats::~WorkerFloats() {
  if (data_) --stack.depth;
}

WideRows::WideRows(const Tensor& t, int64_t begin, int64_t end) : copy_(copied(t, begin, end)) {
  if (!t) return;
  stride_ = narrow_type(t) ? t.cols : t.stride;
  if (!narrow_type(t)) base_ = t.f32();
  else {
    widen_rows(t, begin, end, copy_.data());
    base_ = copy_.data() - begin * stride_;
  }
}

NarrowRows::NarrowRows(const Tensor& t, int64_t begin, int64_t end, bool read)
    : t_(t), begin_(begin), end_(end), copy_(copied(t, begin, end)) {
  if (!t) return;
  stride_ = narrow_type(t) ? t.cols : t.stride;
  base_ = narrow_type(t) ? copy_.data() - begin * stride_ : t.f32();
  if (read && narrow_type(t)) widen_rows(t, begin, end, copy_.data());
}

NarrowRows::~NarrowRows() {
  if (!narrow_type(t_)) return;
  const ConvertKernels& kernels = convert_kernels();
  if (t_.stride == t_.cols) kernels.narrow((end_ - begin_) * t_.cols, copy_.data(), row_of(t_, begin_));
  else
    for (int64_t r = begin_; r < end_; ++r) kernels.narrow(t_.cols, row(r), row_of(t_, r));
}

}  // namespace mudd
