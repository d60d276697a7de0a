// WireValues: the gradients of one message of a sum, as fp32 or bf16 (Wire).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mudd/dist/pieces.h"

namespace mudd::dist {

class WireValues {
 public:
  explicit WireValues(const Wire& wire) : wire_(wire) {}

  // Return memory for `count` values that arrive.
  std::byte* room(int64_t count);
  // Add values to a message that is sent.
  void append(const float* values, int64_t count);
  // Return the message of these ranges of a buffer; fp32 of one range is not copied. null if plane is.
  const void* message(const float* plane, const Ranges& ranges);
  const std::byte* data() const { return bytes_.data(); }
  int64_t bytes() const { return static_cast<int64_t>(bytes_.size()); }
  // Return `count` values from the index `first` as fp32. scratch [count]: for bf16.
  const float* wide(int64_t first, int64_t count, float* scratch) const;

 private:
  Wire wire_;
  std::vector<std::byte> bytes_;
};

// Round the values of a member as if it sent them; fp32 stays.
void cut_own(const Wire& wire, float* values, int64_t count);

}  // namespace mudd::dist
