// SegmentFile: the file in /dev/shm of this process's shared-memory segment for the messages of Open MPI (BTL
// vader).
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

namespace mudd::dist {

class SegmentFile {
 public:
  // Find the file among the mappings of this process, by its exact name. host_rank: among the host_ranks of the
  // job on this host. Return false if some of their segments are not mapped, or the file is not found.
  bool find(int host_rank, int host_ranks) {
    std::set<std::string> mapped;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      if (const size_t at = line.find('/'); at != std::string::npos && is_segment(line.substr(at)))
        mapped.insert(line.substr(at));
    const std::string end = "." + std::to_string(host_rank);
    for (const std::string& path : mapped)
      if (path.ends_with(end)) path_ = path;
    struct stat info;
    const bool ours =
        !path_.empty() && lstat(path_.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid();
    return ours && static_cast<int>(mapped.size()) == host_ranks;
  }

  // Remove the name: the memory is then freed with the last process, however that ends. Call it once all ranks
  // of the host have mapped the segment.
  void remove() { removed_ = unlink(path_.c_str()) == 0; }

  // Create an empty file of that name, which MPI_Finalize removes: without it MPI prints a warning.
  void restore() const {
    if (!removed_) return;
    const int file = open(path_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (file >= 0) ::close(file);
  }

 private:
  // Return true if a path is <folder>/vader_segment.<host>.<user>.<job, hexadecimal>.<number>, of this user.
  static bool is_segment(const std::string& path) {
    const std::string name = path.substr(path.rfind('/') + 1);
    if (!name.starts_with("vader_segment.")) return false;
    const size_t number = name.rfind('.'), job = name.rfind('.', number - 1);
    if (job == std::string::npos || job == 0) return false;
    const size_t user = name.rfind('.', job - 1);
    if (user == std::string::npos) return false;
    return all_of(name.substr(number + 1), "0123456789") &&
           all_of(name.substr(job + 1, number - job - 1), "0123456789abcdef") &&
           name.substr(user + 1, job - user - 1) == std::to_string(geteuid());
  }
  static bool all_of(const std::string& text, const char* letters) {
    return !text.empty() && text.find_first_not_of(letters) == std::string::npos;
  }

  std::string path_;
  bool removed_ = false;
};

}  // namespace mudd::dist
