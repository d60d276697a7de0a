// C++ wrappers of the HDF5 C API: ids that close themselves, element types, errors as exceptions.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace mudd::h5 {

// Element types of datasets; little endian on every machine.
enum class Element : uint8_t { u8, u16, u32, u64, i32, i64, f32, f64 };

int64_t width_of(Element type);  // bytes

// An id of the library that closes itself. Move-only.
class Handle {
 public:
  using Closer = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Closer closer) : id_(id), closer_(closer) {}
  Handle(Handle&& other) noexcept : id_(other.id_), closer_(other.closer_) { other.id_ = -1; }
  Handle& operator=(Handle&& other) noexcept;
  ~Handle() { reset(); }
  hid_t get() const { return id_; }
  hid_t release() { return std::exchange(id_, -1); }
  void reset();

 private:
  hid_t id_ = -1;
  Closer closer_ = nullptr;
};

// Call this before the first use of the library. Errors are not printed, and no cleanup runs at exit: in 1.10.8
// it crashes the process after a failed close on a full disk. Owners close their files.
void prepare_library();
// Return the innermost message of the library's error stack, the most specific one; clear the stack.
std::string library_error();
// Return the handle of a new id. Error with `what` and the library's reason if the id or status is negative.
Handle owned(hid_t id, Handle::Closer closer, const char* what);
void must(herr_t status, const char* what);
// The library's type of an element, and the element of a library's type if there is one.
hid_t type_of(Element type);
std::optional<Element> element_of(hid_t type);

}  // namespace mudd::h5
