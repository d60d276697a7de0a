#include "mudd/params/planes.h"

#include <utility>

#include "mudd/base/check.h"

namespace mudd {
namespace {

// Parameters start at multiples of 16 elements of a plane.
int64_t padded(int64_t elements) { return (elements + 15) / 16 * 16; }

}  // namespace

StoreBlock Planes::place(const std::vector<Part>& parts, int64_t width, bool shared,
                         std::vector<std::byte*>& places) const {
  int64_t elements = 0;
  for (const Part& part : parts) elements += padded(part.size());
  StoreBlock block = memory_.take(elements * width, shared);
  std::byte* at = block.data;
  for (const Part& part : parts) {
    if (part.size() > 0) places[part.parameter] = at;
    at += padded(part.size()) * width;
  }
  return block;
}

void Planes::lend(int i, std::byte* where) {
  const Parameter& p = parameters_.at(i);
  check(planes_.empty(), "parameter", p.name, ": lent after the parameters were allocated");
  check(p.stored != DType::f32 && parameters_.holds_whole(i), "parameter", p.name,
        ": expected one that is stored whole, in 16 bits, to be lent");
  lent_.resize(static_cast<size_t>(parameters_.count()));
  lent_[i] = where;
}

void Planes::allocate() {
  const size_t count = static_cast<size_t>(parameters_.count());
  Plane masters{.places = std::vector<std::byte*>(count), .parts = std::vector<Part>(count)};
  narrow_ = lent_;
  narrow_.resize(count);
  for (const bool of_node : {true, false}) {
    std::vector<Part> wide, narrow;
    for (int i = 0; i < parameters_.count(); ++i) {
      if (parameters_.of_node(i) != of_node) continue;
      const bool is_wide = parameters_.at(i).stored == DType::f32;
      if (!is_lent(i)) (is_wide ? wide : narrow).push_back(parameters_.held(i));
      masters.parts[i] = parameters_.held(i);
    }
    if (!narrow.empty()) narrow_blocks_.push_back(place(narrow, size_of(DType::bf16), of_node, narrow_));
    if (!wide.empty()) masters.blocks.push_back(place(wide, size_of(DType::f32), of_node, masters.places));
  }
  planes_.push_back(std::move(masters));
}

int Planes::add(DType dtype, const std::vector<Part>& parts, PlaneAxis axis) {
  check(dtype == DType::f32 || dtype == DType::bf16, "parameter", "plane: expected float32 or bfloat16, got ",
        name_of(dtype));
  const size_t count = static_cast<size_t>(parameters_.count());
  Plane plane{
      .dtype = dtype, .axis = axis, .places = std::vector<std::byte*>(count), .parts = std::vector<Part>(count)};
  std::vector<Part> own;
  for (const Part& part : parts) own.push_back(part_in(axis, parameters_.at(part.parameter), part));
  for (const Part& part : own)
    if (part.size() > 0) plane.parts[part.parameter] = part;
  plane.blocks.push_back(place(own, size_of(dtype), false, plane.places));
  planes_.push_back(std::move(plane));
  return this->count() - 1;
}

Tensor Planes::weights(int i) const {
  const Parameter& p = parameters_.at(i);
  std::byte* where = narrow_[i] ? narrow_[i] : data(0, i);
  const int64_t rows = parameters_.held(i).size() / p.cols();
  return {.data = where, .rows = rows, .cols = p.cols(), .stride = p.cols(), .dtype = p.stored};
}

int64_t Planes::weight_bytes() const {
  int64_t n = 0;
  for (int i = 0; i < parameters_.count(); ++i)
    if (!is_lent(i)) n += padded(parameters_.held(i).size()) * size_of(parameters_.at(i).stored);
  return n;
}

int64_t Planes::state_bytes() const {
  int64_t bytes = 0;
  for (int p = 1; p < count(); ++p)
    for (const StoreBlock& block : planes_[p].blocks) bytes += block.bytes;
  return bytes;
}

}  // namespace mudd
