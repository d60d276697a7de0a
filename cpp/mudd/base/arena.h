// Arena: the one allocation of a plan. Pages come directly from the system (zeroed; huge pages are requested).
#pragma once

#include <cstddef>
#include <cstdint>

namespace mudd {

constexpr int64_t kAlignment = 64;  // cache line, and the widest vector

constexpr int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Splits one allocation into cache-line-aligned pieces. With a null base each piece is null and used() still
// adds up, so the same function computes the scratch size and assigns the pieces.
class Pieces {
 public:
  explicit Pieces(std::byte* base) : base_(base) {}
  std::byte* bytes(int64_t n) {
    std::byte* p = base_ ? base_ + used_ : nullptr;
    used_ += aligned(n);
    return p;
  }
  template <class T>
  T* take(int64_t count) {
    return reinterpret_cast<T*>(bytes(count * static_cast<int64_t>(sizeof(T))));
  }
  int64_t used() const { return used_; }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

class Arena {
 public:
  Arena() = default;
  // Throws std::bad_alloc if the system has no memory. booked_only: addresses without memory, to plan a model
  // that would not fit; an access ends the program.
  explicit Arena(int64_t bytes, bool booked_only = false);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // Release the memory and keep the addresses: they read as zeros until the next write.
  void release();

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace mudd
