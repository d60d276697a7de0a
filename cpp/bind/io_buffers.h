// Python buffers for the bindings of files.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>

#include "mudd/base/check.h"

namespace mudd::bind {

// Return the view of a buffer; Error if its bytes are not contiguous in C order. where: the place for the message.
inline pybind11::buffer_info contiguous(const pybind11::buffer& buffer, const char* where, bool writable) {
  pybind11::buffer_info info = buffer.request(writable);
  if (info.size == 0) return info;
  pybind11::ssize_t expected = info.itemsize;
  for (pybind11::ssize_t i = info.ndim - 1; i >= 0; --i) {
    const auto k = static_cast<std::size_t>(i);
    check(info.shape[k] <= 1 || info.strides[k] == expected, where, "data: expected a C-contiguous buffer");
    expected *= info.shape[k];
  }
  return info;
}

inline std::uint64_t bytes_of(const pybind11::buffer_info& info) {
  return static_cast<std::uint64_t>(info.size) * static_cast<std::uint64_t>(info.itemsize);
}

}  // namespace mudd::bind
