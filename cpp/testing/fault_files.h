// FileOps for tests: passes every call to another FileOps, records it, and fails, shortens or stops at the n-th
// one. The crash replay truncates, drops and reorders the log.
#pragma once

#include <condition_variable>
#include <mutex>
#include <unordered_map>

#include "mudd/io/file_ops.h"

namespace mudd::io {

// One call that changed the disk, in order. `path` is the file's path, also for calls with a descriptor; `to`
// is set by rename and exchange, `data` and `offset` by write.
struct FileCall {
  std::string call;  // create, write, fsync, fsync_dir, rename, exchange, unlink, mkdir, rmdir
  std::string path;
  std::string to;
  std::string data;
  std::uint64_t offset = 0;
};

class FaultFiles final : public FileOps {
 public:
  explicit FaultFiles(FileOps& inner) : inner_(inner) {}

  // Calls are counted from 1, all kinds together (close and reached are not counted: they cannot lose data).
  void fail_at(std::uint64_t nth, int code);  // that call throws IoError(code) and does nothing
  void stop_at(std::uint64_t nth);            // that call and all later ones fail with EIO: the process is "dead"
  void shorten_at(std::uint64_t nth);         // that write or pread moves half of its bytes, which is legal
  void shrink_free_space(std::uint64_t bytes);  // the result of free_space from now on
  void refuse_exchange();                       // as on a file system that cannot exchange
  void hold_writes(bool hold);                  // true: later writes wait until it is called with false

  std::uint64_t count() const { return count_; }
  const std::vector<FileCall>& log() const { return log_; }
  const std::vector<std::string>& points() const { return points_; }

  int open_read(const std::string& path) override;
  int create(const std::string& path) override;
  int open_dir(const std::string& path) override;
  void close(int fd) override;
  std::size_t write(int fd, const void* data, std::size_t bytes) override;
  std::size_t pread(int fd, void* data, std::size_t bytes, std::uint64_t offset) override;
  std::uint64_t size(int fd) override;
  void fsync(int fd) override;
  void fsync_dir(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  bool exchange(const std::string& a, const std::string& b) override;
  void unlink(const std::string& path) override;
  void mkdir(const std::string& path) override;
  void rmdir(const std::string& path) override;
  std::vector<DirEntry> list(const std::string& path) override;
  std::uint64_t free_space(const std::string& path) override;
  bool try_lock(int fd) override;
  void reached(std::string_view point) override;

 private:
  void arrive(const char* call, const std::string& path);  // counts; throws at the chosen call
  void note(FileCall call) { log_.push_back(std::move(call)); }

  struct Open {
    std::string path;
    std::uint64_t written = 0;
  };

  std::mutex mutex_;  // ranks as threads write concurrently
  std::condition_variable let_go_;
  bool holds_ = false;
  FileOps& inner_;
  std::uint64_t count_ = 0;
  std::uint64_t fail_at_ = 0;
  std::uint64_t stop_at_ = 0;
  std::uint64_t shorten_at_ = 0;
  int code_ = 0;
  bool limited_ = false;
  bool exchanges_ = true;
  std::uint64_t free_space_ = 0;
  std::unordered_map<int, Open> open_;
  std::vector<FileCall> log_;
  std::vector<std::string> points_;
};

}  // namespace mudd::io
