#include "mudd/io/live_bytes.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "mudd/base/check.h"

namespace mudd::io {

void LiveBytes::lend(std::vector<std::span<const std::byte>> pieces) {
  const std::lock_guard<std::mutex> lock(mutex_);
  pieces_ = std::move(pieces);
  starts_.assign(1, 0);
  for (const auto& piece : pieces_) starts_.push_back(starts_.back() + piece.size());
  next_ = 0;
  released_ = false;
  seconds_ = 0;
}

void LiveBytes::read(void* to, std::uint64_t bytes) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    check(bytes <= starts_.back() - next_, "checkpoint", "read: expected at most ", starts_.back() - next_,
          " bytes, got ", bytes);
    if (released_) {
      std::memcpy(to, copy_.get() + (next_ - copied_from_), bytes);
    } else {
      gather(next_, to, bytes);
    }
    next_ += bytes;
  }
  bring_change();
}

void LiveBytes::end() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    pieces_.clear();
    starts_.assign(1, next_);
    released_ = true;
  }
  bring_change();
}

void LiveBytes::bring_change() {
  changes_.fetch_add(1, std::memory_order_release);
  changes_.notify_one();
}

void LiveBytes::release() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (released_) return;
  const auto start = std::chrono::steady_clock::now();
  const std::uint64_t all = starts_.back(), wanted = std::min(room_, all - next_);
  std::byte* copy = copy_of(wanted);
  copied_from_ = copy ? all - wanted : all;
  gather(copied_from_, copy, all - copied_from_);
  while (!released_ && next_ < copied_from_) {
    const int seen = changes_.load(std::memory_order_acquire);
    lock.unlock();
    changes_.wait(seen, std::memory_order_acquire);
    lock.lock();
  }
  released_ = true;
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double LiveBytes::seconds() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return seconds_;
}

void LiveBytes::gather(std::uint64_t from, void* to, std::uint64_t bytes) const {
  auto* out = static_cast<std::byte*>(to);
  auto piece =
      static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), from) - starts_.begin()) - 1;
  for (; bytes > 0; ++piece) {
    const std::uint64_t at = from - starts_[piece], n = std::min(bytes, pieces_[piece].size() - at);
    if (n > 0) std::memcpy(out, pieces_[piece].data() + at, n);
    out += n;
    from += n;
    bytes -= n;
  }
}

std::byte* LiveBytes::copy_of(std::uint64_t bytes) {
  if (bytes <= copy_bytes_) return copy_.get();
  copy_.reset();  // before the larger one is allocated
  copy_bytes_ = 0;
  copy_.reset(new (std::nothrow) std::byte[bytes]);
  if (copy_) copy_bytes_ = bytes;
  return copy_.get();
}

}  // namespace mudd::io
