#include "mudd/dist/wire.h"

#include <cstring>

#include "mudd/kernels/convert/convert.h"

namespace mudd::dist {

std::byte* WireValues::room(int64_t count) {
  bytes_.resize(static_cast<size_t>(count * wire_.width()));
  return bytes_.data();
}

void WireValues::append(const float* values, int64_t count) {
  const size_t at = bytes_.size();
  bytes_.resize(at + static_cast<size_t>(count * wire_.width()));
  std::byte* to = bytes_.data() + at;
  if (wire_.narrow) convert_kernels().cut_narrow(count, values, wire_.offset, reinterpret_cast<bf16*>(to));
  else std::memcpy(to, values, static_cast<size_t>(count) * sizeof(float));
}

const void* WireValues::message(const float* plane, const Ranges& ranges) {
  if (!plane) return nullptr;
  if (!wire_.narrow && ranges.size() == 1) return plane + ranges[0].first;
  bytes_.reserve(static_cast<size_t>(total(ranges) * wire_.width()));
  for (const auto& [first, count] : ranges) append(plane + first, count);
  return bytes_.data();
}

const float* WireValues::wide(int64_t first, int64_t count, float* scratch) const {
  if (!wire_.narrow) return reinterpret_cast<const float*>(bytes_.data()) + first;
  convert_kernels().widen(count, reinterpret_cast<const bf16*>(bytes_.data()) + first, scratch);
  return scratch;
}

void cut_own(const Wire& wire, float* values, int64_t count) {
  if (wire.narrow) convert_kernels().cut(count, values, wire.offset, values);
}

}  // namespace mudd::dist
