// The one entry point to the file system for everything that must survive a crash. Checkpoints, caches and the
// files around them only call FileOps, so a test can fail, shorten or record any single call
// (testing/fault_files.h) and replay the state after a power cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mudd/base/check.h"
#include "mudd/io/errors.h"

namespace mudd::io {

struct DirEntry {
  std::string name;
  bool is_dir = false;  // a link is not followed, so a link to a folder is not a folder
};

// Every call throws IoError if the system refuses it. Descriptors are file descriptors of the system.
class FileOps {
 public:
  virtual ~FileOps() = default;

  // Open a regular file without waiting: a FIFO, socket or device is an error at once. Links are followed.
  virtual int open_read(const std::string& path) = 0;
  virtual int create(const std::string& path) = 0;    // a new file; one that exists is an error
  virtual int open_dir(const std::string& path) = 0;  // for try_lock
  virtual void close(int fd) = 0;
  virtual std::size_t write(int fd, const void* data, std::size_t bytes) = 0;  // at the end; may be short
  virtual std::size_t pread(int fd, void* data, std::size_t bytes, std::uint64_t offset) = 0;  // 0 at the end
  virtual std::uint64_t size(int fd) = 0;
  virtual void fsync(int fd) = 0;
  virtual void fsync_dir(const std::string& path) = 0;
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // Exchange two entries atomically; return false if the file system cannot do that.
  virtual bool exchange(const std::string& a, const std::string& b) = 0;
  virtual void unlink(const std::string& path) = 0;
  virtual void mkdir(const std::string& path) = 0;
  virtual void rmdir(const std::string& path) = 0;
  virtual std::vector<DirEntry> list(const std::string& path) = 0;  // sorted by name
  virtual std::uint64_t free_space(const std::string& path) = 0;    // bytes this user may still write
  virtual bool try_lock(
      int fd) = 0;  // exclusive, does not wait, released at the end of the process; false: held by another

  // Called by the writers at named instants of a save: kill points of the testing build (base/test_build.h).
  virtual void reached(std::string_view point) = 0;
};

// Return FileOps over the system calls.
FileOps& posix_files();

// Return the FileOps in use: posix_files() unless a test has replaced it.
FileOps& files();
void set_files(FileOps* ops);  // nullptr: back to posix_files()

// An open descriptor that closes itself. Errors of close after a sync have no consequence and are ignored.
class File {
 public:
  static File open_read(FileOps& ops, const std::string& path);
  static File create(FileOps& ops, const std::string& path);
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  ~File();

  const std::string& path() const { return path_; }
  std::uint64_t size() const;                                                  // the current size, from the system
  void write_all(const void* data, std::size_t bytes);                         // repeats short writes
  void read_exact(void* data, std::size_t bytes, std::uint64_t offset) const;  // FormatError if it ends early
  void sync();
  void close();  // reports errors

 private:
  File(FileOps& ops, int fd, std::string path) : ops_(&ops), fd_(fd), path_(std::move(path)) {}
  FileOps* ops_;
  int fd_;
  std::string path_;
};

// Write `path` so that a crash leaves the old file or the new one: temporary name in the same folder, sync,
// rename, sync of the folder. The temporary is removed if anything fails.
void replace_file(FileOps& ops, const std::string& path, const void* data, std::size_t bytes);

// Return the content of a file of at most `limit` bytes; FormatError if it is larger.
std::string read_file(FileOps& ops, const std::string& path, std::uint64_t limit);

// Create a folder and its missing parents; each new one is synced into its parent.
void make_folders(FileOps& ops, const std::string& path);

// Remove a folder and its content; links are removed, never followed.
void remove_tree(FileOps& ops, const std::string& path);

std::string parent_of(const std::string& path);  // "." for a bare name

}  // namespace mudd::io
