// Crash replay: the calls of a save are recorded and truncated at every prefix; unsynced data are dropped,
// kept, torn or reordered. After any power cut, a folder with a whole manifest is whole.
#include <doctest/doctest.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "crash_disk.h"
#include "mudd/io/atomic_folder.h"
#include "mudd/io/crc32c.h"
#include "temp_folder.h"
#include "testing/fault_files.h"

using namespace crash;
using namespace mudd::io;

namespace {

const std::string kManifest = "manifest.json";

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

void save(FileOps& ops, const std::string& parent, const std::string& name, char fill, bool replaces = false) {
  const std::string data(replaces ? 3000 : 3 * 1024 * 1024 + 40, fill);
  AtomicFolder folder(ops, parent, name, "id");
  const ShardRecord record = folder.add_shard(
      "model.safetensors", {{"w", "U8", {data.size()}, data.data(), data.size(), {}}}, {{"name", name}});
  if (!replaces) return folder.commit(kManifest, manifest_for(record.crc));
  folder.seal(kManifest, manifest_for(record.crc));
  folder.replace();
}

// Files of a real folder, by path.
Disk read_disk(const std::string& folder) {
  Disk disk;
  for (const DirEntry& entry : posix_files().list(folder)) {
    const std::string path = folder + "/" + entry.name;
    if (entry.is_dir) {
      disk.merge(read_disk(path));
    } else {
      disk[path] = read_file(posix_files(), path, std::uint64_t{1} << 30);
    }
  }
  return disk;
}

// The step as loaders find it: under its name, else set aside.
bool found(const Disk& disk, const std::string& folder) {
  const auto entry = disk.lower_bound(folder + "/");
  const bool exists = entry != disk.end() && entry->first.rfind(folder + "/", 0) == 0;
  return committed(disk, exists ? folder : folder + kSetAsideMark);
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
    for (const std::vector<Fate>& fates : variants_of(log, count, random)) {
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

TEST_CASE("at every prefix of a replacement the step is found whole, as it was or as it is to be") {
  for (const bool exchanges : {true, false}) {
    const TempFolder folder;
    save(posix_files(), folder.path(), "step-2", 'o');
    const Disk before = read_disk(folder.path());
    FaultFiles recorder(posix_files());
    if (!exchanges) recorder.refuse_exchange();
    save(recorder, folder.path(), "step-2", 'n', true);
    const std::vector<FileCall>& log = recorder.log();
    std::mt19937 random(11);
    for (std::size_t count = 0; count <= log.size(); ++count) {
      CAPTURE(exchanges);
      CAPTURE(count);
      for (const std::vector<Fate>& fates : variants_of(log, count, random))
        CHECK(found(replay(log, fates, before), folder.path() + "/step-2"));
    }
    const Disk after = read_disk(folder.path());
    CHECK(after.size() == before.size());  // nothing of the old one stays
    CHECK(after.at(folder.path() + "/step-2/model.safetensors").back() == 'n');
  }
}

TEST_CASE("a replacement that fails or dies at any call leaves one whole step, and the next start tidies up") {
  for (const bool exchanges : {true, false}) {
    for (const bool dies : {true, false}) {
      for (std::uint64_t nth = 1;; ++nth) {
        const TempFolder folder;
        const std::string final_path = folder.path() + "/step-2";
        save(posix_files(), folder.path(), "step-2", 'o', false);
        FaultFiles faults(posix_files());
        if (!exchanges) faults.refuse_exchange();
        dies ? faults.stop_at(nth) : faults.fail_at(nth, ENOSPC);
        bool failed = false;
        try {
          save(faults, folder.path(), "step-2", 'n', true);
        } catch (const IoError&) {
          failed = true;
        }
        CAPTURE(exchanges);
        CAPTURE(dies);
        CAPTURE(nth);
        CHECK(found(read_disk(folder.path()), final_path));
        restore_set_aside(posix_files(), folder.path());
        remove_dead_temporaries(posix_files(), folder.path());
        CHECK(committed(read_disk(folder.path()), final_path));
        CHECK(posix_files().list(folder.path()).size() == 1);
        if (!failed) break;
      }
    }
  }
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
  FaultFiles exchanging(posix_files());
  save(exchanging, folder.path(), "step-2", 'r', true);
  const std::vector<std::string> ends(exchanging.points().end() - 3, exchanging.points().end());
  CHECK(ends == std::vector<std::string>{"before_rename", "after_exchange", "after_commit"});
  FaultFiles renaming(posix_files());
  renaming.refuse_exchange();
  save(renaming, folder.path(), "step-2", 's', true);
  const std::vector<std::string> last(renaming.points().end() - 6, renaming.points().end());
  CHECK(last == std::vector<std::string>{"before_rename", "after_set_aside", "after_rename", "after_commit",
                                         "before_delete", "after_delete_rename"});
}
