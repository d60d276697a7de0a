// FileOps over the system calls.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "mudd/base/test_build.h"
#include "mudd/io/file_ops.h"

namespace mudd::io {
namespace {

// Not writable by other users, for any umask.
constexpr mode_t kFileMode = 0644;
constexpr mode_t kDirMode = 0755;
constexpr unsigned kExchange = 2;  // RENAME_EXCHANGE of linux/fs.h

// Repeat a call that a signal interrupted; throw if it failed.
template <typename Call>
auto checked(const char* name, const std::string& path, Call&& call) {
  while (true) {
    const auto result = call();
    if (result >= 0) return result;
    if (errno != EINTR) throw IoError(name, path, errno);
  }
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  return S_ISFIFO(mode) ? "a FIFO" : "a device";
}

std::string of_descriptor(int fd) { return "descriptor " + std::to_string(fd); }

class PosixFiles final : public FileOps {
 public:
  int open_read(const std::string& path) override {
    const std::string expected = "expected a regular file, got ";
    const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    int fd = -1;
    try {
      fd = checked("open", path, [&] { return ::open(path.c_str(), flags); });
    } catch (const IoError& error) {
      if (error.code() != ENXIO) throw;
      throw IoError("open", path, ENXIO, expected + "a socket or a device");
    }
    struct stat info = {};
    const bool known = ::fstat(fd, &info) == 0;
    if (known && S_ISREG(info.st_mode)) return fd;
    const int code = known ? (S_ISDIR(info.st_mode) ? EISDIR : EINVAL) : errno;
    ::close(fd);
    throw IoError("open", path, code, known ? expected + kind_of(info.st_mode) : "");
  }

  int create(const std::string& path) override {
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    return checked("create", path, [&] { return ::open(path.c_str(), flags, kFileMode); });
  }

  int open_dir(const std::string& path) override {
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    return checked("open", path, [&] { return ::open(path.c_str(), flags); });
  }

  void close(int fd) override {
    // Linux frees the descriptor even when it reports EINTR: repeating could close another thread's descriptor.
    if (::close(fd) != 0 && errno != EINTR) throw IoError("close", of_descriptor(fd), errno);
  }

  std::size_t write(int fd, const void* data, std::size_t bytes) override {
    return static_cast<std::size_t>(checked("write", of_descriptor(fd), [&] { return ::write(fd, data, bytes); }));
  }

  std::size_t pread(int fd, void* data, std::size_t bytes, std::uint64_t offset) override {
    return static_cast<std::size_t>(
        checked("read", of_descriptor(fd), [&] { return ::pread(fd, data, bytes, static_cast<off_t>(offset)); }));
  }

  std::uint64_t size(int fd) override {
    struct stat info = {};
    checked("stat", of_descriptor(fd), [&] { return ::fstat(fd, &info); });
    if (!S_ISREG(info.st_mode)) throw IoError("stat", of_descriptor(fd), S_ISDIR(info.st_mode) ? EISDIR : EINVAL);
    return static_cast<std::uint64_t>(info.st_size);
  }

  void fsync(int fd) override {
    checked("fsync", of_descriptor(fd), [&] { return ::fsync(fd); });
  }

  void fsync_dir(const std::string& path) override {
    const int fd = open_dir(path);
    const int result = ::fsync(fd);
    const int code = errno;
    ::close(fd);
    // Some network file systems cannot sync a folder and return EINVAL: their rename is synchronous.
    if (result != 0 && code != EINVAL) throw IoError("fsync", path, code);
  }

  void rename(const std::string& from, const std::string& to) override {
    checked("rename", from + " to " + to, [&] { return ::rename(from.c_str(), to.c_str()); });
  }

  bool exchange(const std::string& a, const std::string& b) override {
    // A direct system call: musl and old C libraries have no renameat2.
    const auto call = [&] {
      return ::syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), kExchange);
    };
    try {
      checked("exchange", a + " and " + b, call);
    } catch (const IoError& error) {
      if (error.code() == EINVAL || error.code() == ENOSYS || error.code() == ENOTSUP) return false;
      throw;
    }
    return true;
  }

  void unlink(const std::string& path) override {
    checked("unlink", path, [&] { return ::unlink(path.c_str()); });
  }

  void mkdir(const std::string& path) override {
    checked("mkdir", path, [&] { return ::mkdir(path.c_str(), kDirMode); });
  }

  void rmdir(const std::string& path) override {
    checked("rmdir", path, [&] { return ::rmdir(path.c_str()); });
  }

  std::vector<DirEntry> list(const std::string& path) override {
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), &::closedir);
    if (dir == nullptr) throw IoError("list", path, errno);
    std::vector<DirEntry> entries;
    while (true) {
      errno = 0;
      const dirent* entry = ::readdir(dir.get());
      if (entry == nullptr) break;
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      struct stat info = {};
      if (::fstatat(::dirfd(dir.get()), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
        continue;  // removed meanwhile
      entries.push_back({name, S_ISDIR(info.st_mode)});
    }
    if (errno != 0) throw IoError("list", path, errno);
    std::sort(entries.begin(), entries.end(),
              [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; });
    return entries;
  }

  std::uint64_t free_space(const std::string& path) override {
    struct statvfs info = {};
    checked("statvfs", path, [&] { return ::statvfs(path.c_str(), &info); });
    return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
  }

  bool try_lock(int fd) override {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno == EWOULDBLOCK) return false;
    throw IoError("flock", of_descriptor(fd), errno);
  }

  void reached(std::string_view point) override {
    if (testing::linked()) testing::reach(point);
  }
};

}  // namespace

FileOps& posix_files() {
  static PosixFiles instance;
  return instance;
}

}  // namespace mudd::io
