// A folder that appears whole or not at all. Files go into `<name>.tmp-<id>` beside the final place; the order
// of docs/checkpoints.md, 2 follows: write files, sync each, write the manifest, sync it, sync the folder,
// rename, sync the parent. Only the rename commits.
//
// Named points for MUDD_KILL_AT, in order of passage: after_mkdir, then for each shard after_block (one for
// each block of 1 MiB), after_shard_write (not yet synced), after_shard_sync; before_manifest,
// after_manifest_write (not yet synced), after_manifest; before_rename (folder synced), after_rename (parent not
// yet synced), after_commit. A replacement has after_exchange in place of after_rename, or where the file system
// cannot exchange, after_set_aside (the old folder is `<name>.old`) before it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mudd/io/checked_blocks.h"
#include "mudd/io/file_ops.h"

namespace mudd::io {

inline constexpr const char* kTemporaryMark = ".tmp-";
inline constexpr const char* kSetAsideMark = ".old";  // a committed folder whose replacement was not renamed yet

class AtomicFolder {
 public:
  // Makes `<parent>/<name>.tmp-<id>` and locks it for the life of this object, so that a cleaner can tell a
  // living writer from a dead one.
  AtomicFolder(FileOps& ops, const std::string& parent, const std::string& name, const std::string& id);
  ~AtomicFolder() { close(); }
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::string& temporary() const { return temporary_; }

  // Writes and syncs one safetensors file. `file` is a bare name.
  ShardRecord add_shard(const std::string& file, const std::vector<TensorSource>& tensors,
                        const Metadata& metadata);

  // Writes the manifest and syncs: the folder is complete, under its temporary name.
  void seal(const std::string& manifest_file, const std::string& manifest);

  // Seals and renames. The final place must be empty.
  void commit(const std::string& manifest_file, const std::string& manifest);

  // Not committed: removes what was written. An error there is dropped: a later start removes the rest.
  void close() noexcept;

  // Puts the sealed folder in the place of a committed one, and removes that. At every instant one of the two is
  // under its final name or, where the file system cannot exchange, under `<name>.old`.
  void replace();

 private:
  void replace_by_renames();

  FileOps& ops_;
  std::string parent_;
  std::string final_;
  std::string temporary_;
  std::string name_;
  std::string id_;
  int lock_ = -1;
  bool done_ = false;  // committed or removed
};

// Writes and syncs one safetensors file in a folder that another process made: the part of a rank in the temporary
// folder of the first one. `file` is a bare name. Points: as add_shard.
ShardRecord write_shard_into(FileOps& ops, const std::string& folder, const std::string& file,
                             const std::vector<TensorSource>& tensors, const Metadata& metadata);

// Removes the temporary folders in `parent` whose writers are dead; returns their names. A folder whose lock
// is held is left alone. name: only those of this folder to be, in a `parent` where others write too; without a
// name the caller has `parent` to itself, so that a folder which cannot be locked is dead.
std::vector<std::string> remove_dead_temporaries(FileOps& ops, const std::string& parent,
                                                 const std::string& name = {});

// Finishes replacements that a crash broke off: `<name>.old` goes back to `<name>`, or is removed if that exists.
void restore_set_aside(FileOps& ops, const std::string& parent);

// Removes a committed folder so that no half of it is ever found under its name: rename to a temporary name
// first. Points: before_delete, after_delete_rename.
void remove_committed(FileOps& ops, const std::string& parent, const std::string& name, const std::string& id);

}  // namespace mudd::io
