#include "mudd/io/file_ops.h"

#include <algorithm>
#include <atomic>
#include <cerrno>

namespace mudd::io {

namespace {
std::atomic<FileOps*> current{nullptr};
// Write at most 1 GiB per call: Linux moves no more than 2 GiB in one call.
constexpr std::size_t kLargestCall = std::size_t{1} << 30;
}  // namespace

FileOps& files() {
  FileOps* ops = current.load();
  return ops != nullptr ? *ops : posix_files();
}

void set_files(FileOps* ops) { current.store(ops); }

File File::open_read(FileOps& ops, const std::string& path) { return File(ops, ops.open_read(path), path); }

File File::create(FileOps& ops, const std::string& path) { return File(ops, ops.create(path), path); }

File::File(File&& other) noexcept : ops_(other.ops_), fd_(other.fd_), path_(std::move(other.path_)) {
  other.fd_ = -1;
}

File::~File() {
  if (fd_ < 0) return;
  try {
    ops_->close(fd_);
  } catch (const IoError&) {
    // A destructor cannot report; a writer that needs the error calls close() itself.
  }
}

std::uint64_t File::size() const { return ops_->size(fd_); }

void File::write_all(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const std::size_t done = ops_->write(fd_, next, std::min(bytes, kLargestCall));
    if (done == 0) throw IoError("write", path_, ENOSPC);
    next += done;
    bytes -= done;
  }
}

void File::read_exact(void* data, std::size_t bytes, std::uint64_t offset) const {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    const std::size_t done = ops_->pread(fd_, next, std::min(bytes, kLargestCall), offset);
    if (done == 0) {
      throw FormatError(path_, static_cast<std::int64_t>(offset),
                        "the file ends " + std::to_string(bytes) + " bytes early");
    }
    next += done;
    offset += done;
    bytes -= done;
  }
}

void File::sync() { ops_->fsync(fd_); }

void File::close() {
  const int fd = fd_;
  fd_ = -1;
  ops_->close(fd);
}

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

void replace_file(FileOps& ops, const std::string& path, const void* data, std::size_t bytes) {
  const std::string temporary = path + ".tmp";
  try {
    ops.unlink(temporary);  // of a writer that died
  } catch (const IoError& error) {
    if (error.code() != ENOENT) throw;
  }
  try {
    File file = File::create(ops, temporary);
    file.write_all(data, bytes);
    file.sync();
    file.close();
    ops.rename(temporary, path);
  } catch (...) {
    try {
      ops.unlink(temporary);
    } catch (const IoError&) {
      // Report the first error.
    }
    throw;
  }
  ops.fsync_dir(parent_of(path));
}

std::string read_file(FileOps& ops, const std::string& path, std::uint64_t limit) {
  const File file = File::open_read(ops, path);
  const std::uint64_t size = file.size();
  if (size > limit) {
    throw FormatError(path, static_cast<std::int64_t>(limit),
                      "the file has " + std::to_string(size) + " bytes, more than the " + std::to_string(limit) +
                          " allowed here");
  }
  std::string bytes(size, '\0');
  file.read_exact(bytes.data(), bytes.size(), 0);
  return bytes;
}

void make_folders(FileOps& ops, const std::string& path) {
  try {
    ops.mkdir(path);
  } catch (const IoError& error) {
    if (error.code() == EEXIST) return;
    const std::string parent = parent_of(path);
    if (error.code() != ENOENT || parent == path || parent == ".") throw;
    make_folders(ops, parent);
    ops.mkdir(path);
  }
  ops.fsync_dir(parent_of(path));
}

void remove_tree(FileOps& ops, const std::string& path) {
  for (const DirEntry& entry : ops.list(path)) {
    const std::string inner = path + "/" + entry.name;
    if (entry.is_dir) {
      remove_tree(ops, inner);
    } else {
      ops.unlink(inner);
    }
  }
  ops.rmdir(path);
}

}  // namespace mudd::io
