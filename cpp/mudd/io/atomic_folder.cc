#include "mudd/io/atomic_folder.h"

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <utility>

namespace mudd::io {
namespace {

bool has_folder(FileOps& ops, const std::string& parent, const std::string& name) {
  const std::vector<DirEntry> entries = ops.list(parent);
  return std::any_of(entries.begin(), entries.end(),
                     [&](const DirEntry& entry) { return entry.is_dir && entry.name == name; });
}

std::string path_in(const std::string& folder, const std::string& file) {
  if (file.empty() || file == "." || file == ".." || file.find('/') != std::string::npos ||
      file.find('\0') != std::string::npos) {
    throw Error("[checkpoint] file: expected a bare name, got '" + file + "'");
  }
  return folder + "/" + file;
}

}  // namespace

AtomicFolder::AtomicFolder(FileOps& ops, const std::string& parent, const std::string& name, const std::string& id)
    : ops_(ops),
      parent_(parent),
      final_(parent + "/" + name),
      temporary_(final_ + kTemporaryMark + id),
      name_(name),
      id_(id) {
  ops_.mkdir(temporary_);
  try {
    lock_ = ops_.open_dir(temporary_);
    if (!ops_.try_lock(lock_)) throw IoError("flock", temporary_, EWOULDBLOCK);
  } catch (const IoError& error) {
    // File systems without locks: only the lock of the work directory protects.
    const int code = error.code();
    if (code != ENOLCK && code != ENOTSUP && code != ENOSYS && code != EINVAL && code != EBADF) {
      close();
      throw;
    }
  }
  ops_.reached("after_mkdir");
}

void AtomicFolder::close() noexcept {
  try {
    if (!std::exchange(done_, true)) remove_tree(ops_, temporary_);
  } catch (const std::exception&) {
    // The caller sees the first error.
  }
  try {
    if (lock_ >= 0) ops_.close(std::exchange(lock_, -1));
  } catch (const std::exception&) {
    // Nothing was written through this descriptor.
  }
}

ShardRecord AtomicFolder::add_shard(const std::string& file, const std::vector<TensorSource>& tensors,
                                    const Metadata& metadata) {
  return write_shard_into(ops_, temporary_, file, tensors, metadata);
}

void AtomicFolder::seal(const std::string& manifest_file, const std::string& manifest) {
  ops_.reached("before_manifest");
  File out = File::create(ops_, path_in(temporary_, manifest_file));
  out.write_all(manifest.data(), manifest.size());
  ops_.reached("after_manifest_write");
  out.sync();
  out.close();
  ops_.reached("after_manifest");
  ops_.fsync_dir(temporary_);
}

void AtomicFolder::commit(const std::string& manifest_file, const std::string& manifest) {
  seal(manifest_file, manifest);
  ops_.reached("before_rename");
  ops_.rename(temporary_, final_);
  done_ = true;
  ops_.reached("after_rename");
  ops_.fsync_dir(parent_);
  ops_.reached("after_commit");
}

void AtomicFolder::replace() {
  ops_.reached("before_rename");
  if (!ops_.exchange(temporary_, final_)) return replace_by_renames();
  done_ = true;
  ops_.reached("after_exchange");
  ops_.fsync_dir(parent_);  // before the old files are removed: a power cut must not keep only their removal
  ops_.reached("after_commit");
  remove_tree(ops_, temporary_);
}

void AtomicFolder::replace_by_renames() {
  const std::string aside = final_ + kSetAsideMark;
  if (has_folder(ops_, parent_, name_ + kSetAsideMark))
    remove_committed(ops_, parent_, name_ + kSetAsideMark, id_ + "-");
  ops_.rename(final_, aside);
  try {
    ops_.fsync_dir(parent_);
    ops_.reached("after_set_aside");
    ops_.rename(temporary_, final_);
  } catch (const IoError&) {
    ops_.rename(aside, final_);
    throw;
  }
  done_ = true;
  ops_.reached("after_rename");
  ops_.fsync_dir(parent_);
  ops_.reached("after_commit");
  remove_committed(ops_, parent_, name_ + kSetAsideMark, id_);
}

ShardRecord write_shard_into(FileOps& ops, const std::string& folder, const std::string& file,
                             const std::vector<TensorSource>& tensors, const Metadata& metadata) {
  File out = File::create(ops, path_in(folder, file));
  ShardRecord record = write_shard(ops, out, tensors, metadata);
  ops.reached("after_shard_write");
  out.sync();
  out.close();
  ops.reached("after_shard_sync");
  return record;
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
      if (error.code() == ENOENT) continue;  // its writer removed it first
      throw;
    }
    bool dead = name.empty();  // if there are no locks
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
      ops.close(fd);  // also releases the lock, so that others can try again
      throw;
    }
    ops.close(fd);
  }
  return removed;
}

void restore_set_aside(FileOps& ops, const std::string& parent) {
  const std::string mark = kSetAsideMark;
  for (const DirEntry& entry : ops.list(parent)) {
    if (!entry.is_dir || !entry.name.ends_with(mark)) continue;
    const std::string name = entry.name.substr(0, entry.name.size() - mark.size());
    if (has_folder(ops, parent, name)) {
      remove_committed(ops, parent, entry.name, "restored");
    } else {
      ops.rename(parent + "/" + entry.name, parent + "/" + name);
      ops.fsync_dir(parent);
    }
  }
}

void remove_committed(FileOps& ops, const std::string& parent, const std::string& name, const std::string& id) {
  const std::string doomed = parent + "/" + name + kTemporaryMark + id;
  ops.reached("before_delete");
  ops.rename(parent + "/" + name, doomed);
  ops.reached("after_delete_rename");
  remove_tree(ops, doomed);
}

}  // namespace mudd::io
