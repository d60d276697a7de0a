// LiveBytes: memory that a writer copies to a file while its owner continues. The owner changes the memory only
// after release(), which first copies the bytes that are not written yet. A save during training uses it: weights
// and moments change only in the update.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace mudd::io {

// Two threads use it: the writer calls read() and end(), the owner calls lend(), release() and seconds().
class LiveBytes {
 public:
  // room: the most bytes that release() copies. They are allocated by the first release() that needs them, and
  // kept.
  explicit LiveBytes(std::uint64_t room) : room_(room) {}

  // Start with these pieces, which read() returns in this order. An earlier writer must have called end().
  void lend(std::vector<std::span<const std::byte>> pieces);

  // Copy the next `bytes` bytes to `to`. They are the bytes at the time of lend(). Error if fewer are left.
  void read(void* to, std::uint64_t bytes);
  // Read nothing more, after the last byte or an error of the writer.
  void end();

  // Return when the pieces may change: copy the last `room` bytes, and wait until the writer has read the others.
  void release();
  // Return the seconds that release() calls have taken since lend().
  double seconds() const;

 private:
  // Copy `bytes` bytes, from byte `from` of all pieces on.
  void gather(std::uint64_t from, void* to, std::uint64_t bytes) const;
  // Wake release().
  void bring_change();
  // Return memory for `bytes` bytes; nullptr if there is none.
  std::byte* copy_of(std::uint64_t bytes);

  const std::uint64_t room_;
  mutable std::mutex mutex_;
  // Counts read() and end() calls. Not a condition variable: GCC 12's needs a symbol that manylinux_2_34 lacks.
  std::atomic<int> changes_ = 0;
  std::vector<std::span<const std::byte>> pieces_;
  std::vector<std::uint64_t> starts_ = {0};  // of each piece, and the end of the last one
  std::uint64_t next_ = 0;                   // the first byte that is not read yet
  std::uint64_t copied_from_ = 0;            // once released, the bytes from here on are in copy_
  bool released_ = true;
  std::unique_ptr<std::byte[]> copy_;
  std::uint64_t copy_bytes_ = 0;
  double seconds_ = 0;
};

}  // namespace mudd::io
