// A folder that appears whole or not at all. Files are written to `<name>.tmp-<id>` next to the final place, in
// the order of docs/checkpoints.md, 2: write files, sync each, write the manifest, sync it, sync the folder,
// rename, sync the parent. Only the rename commits.
//
// Named points for MUDD_KILL_AT, in order: after_mkdir, then for each shard after_block (one for each block of
// 1 MiB), after_shard_write (not yet synced), after_shard_sync; before_manifest, after_manifest_write (not yet
// synced), after_manifest; before_rename (folder synced), after_rename (parent not yet synced), after_commit. A
// replacement has after_exchange instead of after_rename; if the file system cannot exchange, after_set_aside
// (the old folder is `<name>.old`) comes before it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mudd/io/checked_blocks.h"
#include "mudd/io/file_ops.h"

namespace mudd::io {

inline constexpr const char* kTemporaryMark = ".tmp-";
inline constexpr const char* kSetAsideMark = ".old";  // a committed folder before the rename of its replacement

class AtomicFolder {
 public:
  // Create `<parent>/<name>.tmp-<id>` and lock it for the lifetime of this object, so that a cleaner can
  // distinguish a living writer from a dead one.
  AtomicFolder(FileOps& ops, const std::string& parent, const std::string& name, const std::string& id);
  ~AtomicFolder() { close(); }
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::string& temporary() const { return temporary_; }

  // Write and sync one safetensors file. `file` is a name without a folder.
  ShardRecord add_shard(const std::string& file, const std::vector<TensorSource>& tensors,
                        const Metadata& metadata);

  // Write the manifest and sync: the folder is complete, under its temporary name.
  void seal(const std::string& manifest_file, const std::string& manifest);

  // Seal and rename. The final place must be empty.
  void commit(const std::string& manifest_file, const std::string& manifest);

  // Remove the files if they are not committed. An error here is ignored: a later start removes the rest.
  void close() noexcept;

  // Replace a committed folder by the sealed one, and remove the old one. At every instant one of the two is
  // under its final name or, if the file system cannot exchange, under `<name>.old`.
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

// Write and sync one safetensors file in a folder of another process: the part of a rank in the temporary
// folder of the first one. `file` is a name without a folder. Points: as in add_shard.
ShardRecord write_shard_into(FileOps& ops, const std::string& folder, const std::string& file,
                             const std::vector<TensorSource>& tensors, const Metadata& metadata);

// Remove the temporary folders in `parent` whose writers are dead; return their names. A folder with a held
// lock stays. name: remove only temporaries of this folder, in a `parent` where others write too; without a
// name the caller is the only user of `parent`, so a folder that cannot be locked is dead.
std::vector<std::string> remove_dead_temporaries(FileOps& ops, const std::string& parent,
                                                 const std::string& name = {});

// Finish replacements that a crash interrupted: `<name>.old` is renamed to `<name>`, or removed if that exists.
void restore_set_aside(FileOps& ops, const std::string& parent);

// Remove a committed folder so that no half of it ever appears under its name: rename to a temporary name
// first. Points: before_delete, after_delete_rename.
void remove_committed(FileOps& ops, const std::string& parent, const std::string& name, const std::string& id);

}  // namespace mudd::io
