#include "mudd/base/arena.h"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace mudd {

Arena::Arena(int64_t bytes, bool booked_only) : bytes_(bytes) {
  if (bytes == 0) return;
  const int access = booked_only ? PROT_NONE : PROT_READ | PROT_WRITE;
  const int kind = MAP_PRIVATE | MAP_ANONYMOUS | (booked_only ? MAP_NORESERVE : 0);
  void* p = mmap(nullptr, static_cast<size_t>(bytes), access, kind, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  if (!booked_only)
    madvise(p, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // a wish: fewer TLB misses; refusal is fine
  data_ = static_cast<std::byte*>(p);
}

Arena::~Arena() {
  if (data_) munmap(data_, static_cast<size_t>(bytes_));
}

void Arena::release() {
  if (data_) madvise(data_, static_cast<size_t>(bytes_), MADV_DONTNEED);
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace mudd
