#include "mudd/base/arena.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <utility>

namespace mudd {
namespace {

// The start of booked arenas: no process can map it. On x86-64 it is not canonical. ARM ignores the highest byte,
// and bit 55 makes it an address of the kernel.
std::byte* booked_address() { return reinterpret_cast<std::byte*>(uintptr_t{1} << 62 | uintptr_t{1} << 55); }

}  // namespace

// Booked addresses are not mapped, so a plan uses no part of a limited address space (ulimit -v).
Arena::Arena(int64_t bytes, bool booked_only) : bytes_(bytes) {
  if (bytes == 0) return;
  if (booked_only) {
    data_ = booked_address();
    return;
  }
  void* p = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  madvise(p, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // a hint: fewer TLB misses; it may be refused
  data_ = static_cast<std::byte*>(p);
}

Arena::~Arena() {
  if (data_ && data_ != booked_address()) munmap(data_, static_cast<size_t>(bytes_));
}

void Arena::release() {
  if (data_ && data_ != booked_address()) madvise(data_, static_cast<size_t>(bytes_), MADV_DONTNEED);
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace mudd
