// Crash replay: the calls of a save are recorded, cut at every prefix, and what was not yet synced is dropped,
// kept, torn or taken out of order. Whatever a power cut leaves, a folder with a whole manifest is whole.
#include <doctest/doctest.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <random>

#include "mudd/io/atomic_folder.h"
#include "mudd/io/crc32c.h"
#include "mudd/io/fault_files.h"
#include "temp_folder.h"

using namespace mudd::io;

namespace {

// Files by path; a folder is known by the paths under it. Enough to replay what FileOps can do.
using Disk = std::map<std::string, std::string>;

const std::string kManifest = "manifest.json";

// A recorded call is lost or kept; a kept write may keep only its first bytes.
struct Fate {
  bool kept = true;
  std::size_t bytes = SIZE_MAX;
};

std::string folder_of(const std::string& path) { return parent_of(path); }

// Which of the first `count` calls no later sync has made durable.
std::vector<bool> pending(const std::vector<FileCall>& log, std::size_t count) {
  std::vector<bool> out(count, false);
  for (std::size_t i = 0; i < count; ++i) {
    if (log[i].call == "fsync" || log[i].call == "fsync_dir") continue;
    out[i] = true;
    for (std::size_t k = i + 1; k < count && out[i]; ++k) {
      if (log[i].call == "write") {
        out[i] = !(log[k].call == "fsync" && log[k].path == log[i].path);
      } else {
        out[i] = !(log[k].call == "fsync_dir" && log[k].path == folder_of(log[i].path));
      }
    }
  }
  return out;
}

// What lies on the disk when the calls had these fates.
Disk replay(const std::vector<FileCall>& log, const std::vector<Fate>& fates, const Disk& before) {
  // Contents follow the file, not its name: a write reaches the blocks even where the entry was lost.
  std::map<std::string, std::string> contents;
  for (std::size_t i = 0; i < fates.size(); ++i) {
    if (log[i].call != "write" || !fates[i].kept) continue;
    std::string& bytes = contents[log[i].path];
    const std::string data = log[i].data.substr(0, fates[i].bytes);
    if (bytes.size() < log[i].offset + data.size()) bytes.resize(log[i].offset + data.size(), '\0');
    bytes.replace(log[i].offset, data.size(), data);
  }
  Disk disk = before;
  for (std::size_t i = 0; i < fates.size(); ++i) {
    if (!fates[i].kept) continue;
    if (log[i].call == "create") disk[log[i].path] = contents[log[i].path];
    if (log[i].call == "unlink") disk.erase(log[i].path);
    if (log[i].call != "rename") continue;
    Disk moved;
    for (const auto& [path, bytes] : disk) {
      const std::string from = log[i].path + "/";
      moved[path.rfind(from, 0) == 0 ? log[i].to + "/" + path.substr(from.size()) : path] = bytes;
    }
    disk = moved;
  }
  return disk;
}

// The check that every reader makes: the manifest names the other file's checksum and carries its own.
bool committed(const Disk& disk, const std::string& folder) {
  const auto manifest = disk.find(folder + "/" + kManifest);
  const auto shard = disk.find(folder + "/model.safetensors");
  if (manifest == disk.end()) return false;
  const std::string& text = manifest->second;
  if (text.size() < 4) return false;
  std::uint32_t own = 0;
  std::memcpy(&own, text.data() + text.size() - 4, 4);
  if (crc32c(text.data(), text.size() - 4) != own) return false;
  // From here the manifest is whole, so the promise is that everything it speaks of is whole too.
  REQUIRE(shard != disk.end());
  std::uint32_t stored = 0;
  std::memcpy(&stored, text.data(), 4);
  REQUIRE(crc32c(shard->second.data(), shard->second.size()) == stored);
  return true;
}

std::string manifest_for(std::uint32_t crc) {
  std::string text(reinterpret_cast<const char*>(&crc), 4);
  text += "rest of the manifest, long enough to be torn in the middle";
  const std::uint32_t own = crc32c(text.data(), text.size());
  return text.append(reinterpret_cast<const char*>(&own), 4);
}

void save(FileOps& ops, const std::string& parent, const std::string& name, char fill) {
  const std::string data(3 * 1024 * 1024 + 40, fill);
  AtomicFolder folder(ops, parent, name, "id");
  const ShardRecord record = folder.add_shard(
      "model.safetensors", {{"w", "U8", {data.size()}, data.data(), data.size()}}, {{"name", name}});
  folder.commit(kManifest, manifest_for(record.crc));
}

}  // namespace

TEST_CASE("every prefix of a save, with anything unsynced lost, torn or reordered, is old or new") {
  const TempFolder folder;
  FaultFiles recorder(posix_files());
  save(recorder, folder.path(), "step-2", 'n');
  const std::vector<FileCall>& log = recorder.log();
  REQUIRE(log.size() > 10);
  const std::string final_path = folder.path() + "/step-2";

  std::mt19937 random(7);
  std::size_t states = 0;
  std::size_t fresh = 0;
  for (std::size_t count = 0; count <= log.size(); ++count) {
    const std::vector<bool> open = pending(log, count);
    std::vector<std::vector<Fate>> variants;
    variants.emplace_back(count);  // all kept
    variants.emplace_back(count);
    for (std::size_t i = 0; i < count; ++i) variants.back()[i].kept = !open[i];  // all lost
    for (std::size_t i = 0; i < count; ++i) {
      if (!open[i]) continue;
      variants.emplace_back(count);  // this one lost, later ones kept: reordered
      variants.back()[i].kept = false;
      variants.emplace_back(count);  // only this one kept
      for (std::size_t k = 0; k < count; ++k) variants.back()[k].kept = !open[k] || k == i;
      if (log[i].call != "write") continue;
      for (const std::size_t part : {std::size_t{0}, log[i].data.size() / 2, log[i].data.size() - 1}) {
        variants.emplace_back(count);
        variants.back()[i].bytes = part;
      }
    }
    for (int trial = 0; trial < 30; ++trial) {
      variants.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i) {
        if (!open[i]) continue;
        variants.back()[i].kept = random() % 2 == 0;
        if (random() % 4 == 0) variants.back()[i].bytes = random() % (log[i].data.size() + 1);
      }
    }
    for (const std::vector<Fate>& fates : variants) {
      CAPTURE(count);
      const bool is_new = committed(replay(log, fates, {}), final_path);
      fresh += is_new ? 1 : 0;
      ++states;
      if (count == log.size()) CHECK(is_new);  // after the last sync nothing can be lost
    }
  }
  CHECK(fresh > 0);
  CHECK(fresh < states);
  MESSAGE("states replayed: " << states << ", of them with the new step: " << fresh);
}

TEST_CASE("a save that fails at any call leaves the older step alone and no trace of itself") {
  const TempFolder folder;
  save(posix_files(), folder.path(), "step-1", 'o');
  for (std::uint64_t nth = 1;; ++nth) {
    FaultFiles faults(posix_files());
    faults.fail_at(nth, ENOSPC);
    bool failed = false;
    try {
      save(faults, folder.path(), "step-2", 'n');
    } catch (const IoError& error) {
      failed = true;
      CHECK(error.code() == ENOSPC);
    }
    const std::vector<DirEntry> left = posix_files().list(folder.path());
    CAPTURE(nth);
    CHECK(left[0].name == "step-1");
    if (left.size() == 2) {
      CHECK(left[1].name == "step-2");  // the very last call syncs the parent: the rename is done by then
      remove_tree(posix_files(), folder.path() + "/step-2");
    } else {
      CHECK(left.size() == 1);
    }
    if (!failed) break;
  }
}

TEST_CASE("a writer that dies at any call leaves what the next start removes") {
  const TempFolder folder;
  for (std::uint64_t nth = 2; nth < 8; ++nth) {
    FaultFiles faults(posix_files());
    faults.stop_at(nth);
    CHECK_THROWS_AS(save(faults, folder.path(), "step-2", 'n'), IoError);
    REQUIRE(posix_files().list(folder.path()).size() == 1);
    CHECK(remove_dead_temporaries(posix_files(), folder.path()).size() == 1);
    CHECK(posix_files().list(folder.path()).empty());
  }
}

TEST_CASE("the folder of a living writer is left alone") {
  const TempFolder folder;
  {
    const AtomicFolder writer(posix_files(), folder.path(), "step-3", "id");
    CHECK(remove_dead_temporaries(posix_files(), folder.path()).empty());
    CHECK(posix_files().list(folder.path()).size() == 1);
  }
  CHECK(posix_files().list(folder.path()).empty());
}

TEST_CASE("the points of a save pass in their documented order") {
  const TempFolder folder;
  FaultFiles recorder(posix_files());
  save(recorder, folder.path(), "step-2", 'n');
  CHECK(recorder.points() == std::vector<std::string>{"after_mkdir", "after_block", "after_block", "after_block",
                                                      "after_block", "after_shard_write", "after_shard_sync",
                                                      "before_manifest", "after_manifest_write", "after_manifest",
                                                      "before_rename", "after_rename", "after_commit"});
}
