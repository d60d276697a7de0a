#include "testing/fault_files.h"

#include <algorithm>
#include <cerrno>

namespace mudd::io {

void FaultFiles::fail_at(std::uint64_t nth, int code) {
  fail_at_ = nth;
  code_ = code;
}

void FaultFiles::stop_at(std::uint64_t nth) { stop_at_ = nth; }

void FaultFiles::shorten_at(std::uint64_t nth) { shorten_at_ = nth; }

void FaultFiles::shrink_free_space(std::uint64_t bytes) {
  limited_ = true;
  free_space_ = bytes;
}

void FaultFiles::refuse_exchange() { exchanges_ = false; }

void FaultFiles::hold_writes(bool hold) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    holds_ = hold;
  }
  let_go_.notify_all();
}

void FaultFiles::arrive(const char* call, const std::string& path) {
  ++count_;
  if (fail_at_ != 0 && count_ == fail_at_) throw IoError(call, path, code_);
  if (stop_at_ != 0 && count_ >= stop_at_) throw IoError(call, path, EIO);
}

int FaultFiles::open_read(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex_);
  arrive("open", path);
  const int fd = inner_.open_read(path);
  open_[fd] = {path, 0};
  return fd;
}

int FaultFiles::create(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex_);
  arrive("create", path);
  const int fd = inner_.create(path);
  open_[fd] = {path, 0};
  note({"create", path, "", "", 0});
  return fd;
}

int FaultFiles::open_dir(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex_);
  arrive("open", path);
  const int fd = inner_.open_dir(path);
  open_[fd] = {path, 0};
  return fd;
}

void FaultFiles::close(int fd) {
  const std::lock_guard<std::mutex> lock(mutex_);
  open_.erase(fd);
  inner_.close(fd);
}

std::size_t FaultFiles::write(int fd, const void* data, std::size_t bytes) {
  std::unique_lock<std::mutex> lock(mutex_);
  let_go_.wait(lock, [this] { return !holds_; });
  Open& open = open_[fd];
  arrive("write", open.path);
  if (count_ == shorten_at_) bytes = std::max<std::size_t>(1, bytes / 2);
  const std::size_t done = inner_.write(fd, data, bytes);
  note({"write", open.path, "", std::string(static_cast<const char*>(data), done), open.written});
  open.written += done;
  return done;
}

std::size_t FaultFiles::pread(int fd, void* data, std::size_t bytes, std::uint64_t offset) {
  const std::lock_guard<std::mutex> lock(mutex_);
  arrive("read", open_[fd].path);
  if (count_ == shorten_at_) bytes = std::max<std::size_t>(1, bytes / 2);
  return inner_.pread(fd, data, bytes, offset);
}

std::uint64_t FaultFiles::size(int fd) {
  const std::lock_guard<std::mutex> lock(mutex_);
  arrive("stat", open_[fd].path);
  return inner_.size(fd);
}

void FaultFiles::fsync(int fd) {
  const std::lock_guard<std::mutex> lock(mutex_);
  arrive("fsync", open_[fd].path);
  inner_.fsync(fd);
  note({"fsync", open_[fd].path, "", "", 0});
}

void FaultFiles::fsync_dir(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex_);
  arrive("fsync_dir", path);
  inner_.fsync_dir(path);
  note({"fsync_dir", path, "", "", 0});
}

void FaultFiles::rename(const std::string& from, const std::string& to) {
  const std::lock_guard<std::mutex> lock(mutex_);
  arrive("rename", from);
  inner_.rename(from, to);
  note({"rename", from, to, "", 0});
}

bool FaultFiles::exchange(const std::string& a, const std::string& b) {
  const std::lock_guard<std::mutex> lock(mutex_);
  arrive("exchange", a);
  if (!exchanges_ || !inner_.exchange(a, b)) return false;
  note({"exchange", a, b, "", 0});
  return true;
}

void FaultFiles::unlink(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex_);
  arrive("unlink", path);
  inner_.unlink(path);
  note({"unlink", path, "", "", 0});
}

void FaultFiles::mkdir(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex_);
  arrive("mkdir", path);
  inner_.mkdir(path);
  note({"mkdir", path, "", "", 0});
}

void FaultFiles::rmdir(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex_);
  arrive("rmdir", path);
  inner_.rmdir(path);
  note({"rmdir", path, "", "", 0});
}

std::vector<DirEntry> FaultFiles::list(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex_);
  arrive("list", path);
  return inner_.list(path);
}

std::uint64_t FaultFiles::free_space(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex_);
  arrive("statvfs", path);
  return limited_ ? free_space_ : inner_.free_space(path);
}

bool FaultFiles::try_lock(int fd) {
  const std::lock_guard<std::mutex> lock(mutex_);
  arrive("flock", open_[fd].path);
  return inner_.try_lock(fd);
}

void FaultFiles::reached(std::string_view point) {
  const std::lock_guard<std::mutex> lock(mutex_);
  points_.emplace_back(point);
}

}  // namespace mudd::io
