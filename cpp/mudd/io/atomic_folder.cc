#include "mudd/io/atomic_folder.h"

#include <cerrno>
#include <stdexcept>

namespace mudd::io {

AtomicFolder::AtomicFolder(FileOps& ops, const std::string& parent, const std::string& name, const std::string& id)
    : ops_(ops), parent_(parent), final_(parent + "/" + name), temporary_(final_ + kTemporaryMark + id) {
  ops_.mkdir(temporary_);
  try {
    lock_ = ops_.open_dir(temporary_);
    if (!ops_.try_lock(lock_)) throw IoError("flock", temporary_, EWOULDBLOCK);
  } catch (const IoError& error) {
    // File systems without locks: the lock of the work directory is what remains.
    const int code = error.code();
    if (code != ENOLCK && code != ENOTSUP && code != ENOSYS && code != EINVAL && code != EBADF) {
      abandon();
      throw;
    }
  }
  ops_.reached("after_mkdir");
}

AtomicFolder::~AtomicFolder() { abandon(); }

void AtomicFolder::abandon() noexcept {
  try {
    if (!committed_) remove_tree(ops_, temporary_);
  } catch (const std::exception&) {
    // The error that brought us here is the one the caller sees.
  }
  try {
    if (lock_ >= 0) ops_.close(lock_);
  } catch (const std::exception&) {
    // Nothing was written through this descriptor.
  }
}

std::string AtomicFolder::path_of(const std::string& file) const {
  if (file.empty() || file == "." || file == ".." || file.find('/') != std::string::npos ||
      file.find('\0') != std::string::npos) {
    throw Error("[checkpoint] file: expected a bare name, got '" + file + "'");
  }
  return temporary_ + "/" + file;
}

ShardRecord AtomicFolder::add_shard(const std::string& file, const std::vector<TensorSource>& tensors,
                                    const Metadata& metadata) {
  File out = File::create(ops_, path_of(file));
  ShardRecord record = write_shard(ops_, out, tensors, metadata);
  ops_.reached("after_shard_write");
  out.sync();
  out.close();
  ops_.reached("after_shard_sync");
  return record;
}

void AtomicFolder::commit(const std::string& manifest_file, const std::string& manifest) {
  ops_.reached("before_manifest");
  File out = File::create(ops_, path_of(manifest_file));
  out.write_all(manifest.data(), manifest.size());
  ops_.reached("after_manifest_write");
  out.sync();
  out.close();
  ops_.reached("after_manifest");
  ops_.fsync_dir(temporary_);
  ops_.reached("before_rename");
  ops_.rename(temporary_, final_);
  committed_ = true;
  ops_.reached("after_rename");
  ops_.fsync_dir(parent_);
  ops_.reached("after_commit");
}

std::vector<std::string> remove_dead_temporaries(FileOps& ops, const std::string& parent,
                                                 const std::string& name) {
  std::vector<std::string> removed;
  for (const DirEntry& entry : ops.list(parent)) {
    const size_t mark = entry.name.find(kTemporaryMark);
    if (!entry.is_dir || mark == std::string::npos) continue;
    if (!name.empty() && entry.name.substr(0, mark) != name) continue;
    const std::string path = parent + "/" + entry.name;
    int fd = -1;
    try {
      fd = ops.open_dir(path);
    } catch (const IoError& error) {
      if (error.code() == ENOENT) continue;  // its writer was faster
      throw;
    }
    bool dead = name.empty();  // where there are no locks
    try {
      dead = ops.try_lock(fd);
    } catch (const IoError&) {
    }
    try {
      if (dead) {
        remove_tree(ops, path);
        removed.push_back(entry.name);
      }
    } catch (const std::exception&) {
      ops.close(fd);  // and with it the lock, or nobody could try again
      throw;
    }
    ops.close(fd);
  }
  return removed;
}

void remove_committed(FileOps& ops, const std::string& parent, const std::string& name, const std::string& id) {
  const std::string doomed = parent + "/" + name + kTemporaryMark + id;
  ops.reached("before_delete");
  ops.rename(parent + "/" + name, doomed);
  ops.reached("after_delete_rename");
  remove_tree(ops, doomed);
}

}  // namespace mudd::io
