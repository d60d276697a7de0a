#include "mudd/params/planes.h"

#include <utility>

#include "mudd/base/check.h"

namespace mudd {
namespace {

// Parameters begin at multiples of 16 elements of a plane.
int64_t padded(int64_t elements) { return (elements + 15) / 16 * 16; }

}  // namespace

void Planes::allocate() {
  std::vector<Part> all;
  narrow_offsets_.assign(static_cast<size_t>(parameters_.count()), -1);
  int64_t narrow = 0;
  for (int i = 0; i < parameters_.count(); ++i) {
    if (parameters_.at(i).stored == DType::f32) {
      all.push_back(parameters_.whole(i));
      continue;
    }
    narrow_offsets_[i] = narrow;
    narrow += padded(parameters_.at(i).size());
  }
  if (narrow > 0) narrow_ = memory_.take(narrow * size_of(DType::bf16), true);
  add(DType::f32, all);
}

int Planes::add(DType dtype, const std::vector<Part>& parts) {
  check(dtype == DType::f32 || dtype == DType::bf16, "parameter", "plane: expected float32 or bfloat16, got ",
        name_of(dtype));
  Plane plane{.dtype = dtype,
              .offsets = std::vector<int64_t>(static_cast<size_t>(parameters_.count()), -1),
              .parts = std::vector<Part>(static_cast<size_t>(parameters_.count()))};
  int64_t elements = 0;
  for (const Part& part : parts) {
    if (part.size() == 0) continue;
    plane.offsets[part.parameter] = elements;
    plane.parts[part.parameter] = part;
    elements += padded(part.size());
  }
  plane.block = memory_.take(elements * size_of(dtype), planes_.empty());
  planes_.push_back(std::move(plane));
  return count() - 1;
}

Tensor Planes::weights(int i) const {
  const Parameter& p = parameters_.at(i);
  std::byte* where = narrow_offsets_[i] < 0 ? data(0, i) : narrow_.data + narrow_offsets_[i] * size_of(p.stored);
  return {.data = where, .rows = p.rows(), .cols = p.cols(), .stride = p.cols(), .dtype = p.stored};
}

int64_t Planes::weight_bytes() const {
  int64_t n = 0;
  for (int i = 0; i < parameters_.count(); ++i) {
    const Parameter& p = parameters_.at(i);
    n += padded(p.size()) * size_of(p.stored);
  }
  return n;
}

int64_t Planes::state_bytes() const {
  int64_t bytes = 0;
  for (int p = 1; p < count(); ++p) bytes += planes_[p].block.bytes;
  return bytes;
}

}  // namespace mudd
