// The disk that a power cut leaves: recorded file calls, some of them lost, torn or out of order.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "testing/fault_files.h"

namespace crash {

using mudd::io::FileCall;

// Files by path; a folder is known by the paths under it. Enough to replay what FileOps can do.
using Disk = std::map<std::string, std::string>;

// A recorded call is lost or kept; a kept write may keep only its first bytes.
struct Fate {
  bool kept = true;
  std::size_t bytes = SIZE_MAX;
};

inline std::string folder_of(const std::string& path) { return mudd::io::parent_of(path); }

// Return which of the first `count` calls no later sync has made durable.
inline std::vector<bool> pending(const std::vector<FileCall>& log, std::size_t count) {
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

// Return the content of the disk after the calls with these fates.
inline Disk replay(const std::vector<FileCall>& log, const std::vector<Fate>& fates, const Disk& before) {
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
    if (log[i].call != "rename" && log[i].call != "exchange") continue;
    const std::string from = log[i].path + "/", to = log[i].to + "/";
    Disk moved;
    for (const auto& [path, bytes] : disk) {
      if (path.rfind(from, 0) == 0) {
        moved[to + path.substr(from.size())] = bytes;
      } else if (log[i].call == "exchange" && path.rfind(to, 0) == 0) {
        moved[from + path.substr(to.size())] = bytes;
      } else {
        moved[path] = bytes;
      }
    }
    disk = moved;
  }
  return disk;
}

// Fates of the first `count` calls: all kept, all unsynced ones lost, each alone lost, kept or torn, random mixes.
inline std::vector<std::vector<Fate>> variants_of(const std::vector<FileCall>& log, std::size_t count,
                                                  std::mt19937& random) {
  const std::vector<bool> open = pending(log, count);
  std::vector<std::vector<Fate>> variants;
  variants.emplace_back(count);
  variants.emplace_back(count);
  for (std::size_t i = 0; i < count; ++i) variants.back()[i].kept = !open[i];
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
  return variants;
}

}  // namespace crash
